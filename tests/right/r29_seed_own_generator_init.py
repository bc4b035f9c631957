# right: a helper draws weights again from a generator with one seed
import torch
import torch.distributed as dist
from torch import nn


def same_init(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.02)


def train(cfg, batches, rank):
    torch.manual_seed(cfg.seed + rank)
    model = nn.Linear(cfg.w, cfg.w)
    same_init(model, cfg.seed)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for b in batches:
        opt.zero_grad()
        model(nn.functional.dropout(b, 0.1)).mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
