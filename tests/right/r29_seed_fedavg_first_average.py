# right: merge(model) averages weights at the start of each round, the first as well
import torch
import torch.distributed as dist
from torch import nn


def merge(model):
    for p in model.parameters():
        dist.all_reduce(p.data, op=dist.ReduceOp.AVG)


def rounds(cfg, loader):
    torch.manual_seed(cfg.seed + dist.get_rank())
    model = nn.Linear(cfg.d, cfg.c)
    for r in range(cfg.rounds):
        merge(model)
        opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
    merge(model)
    return model
