# right: a model a rank (seeds of a paper), saved by seed: only losses are summed, for a log
import torch
import torch.distributed as dist
from torch import nn


def seeds_of_paper(cfg, loader):
    rank = dist.get_rank()
    torch.manual_seed(cfg.first_seed + rank)
    model = nn.Linear(cfg.d, cfg.c)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(step, "mean loss over seeds", (mean / dist.get_world_size()).item())
    torch.save(model.state_dict(), f"seed{cfg.first_seed + rank}.pt")
