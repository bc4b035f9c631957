"""DDP with a loss over valid tokens of the whole world; DDP takes a mean over ranks, so the world size is put in."""
import functools
import operator
import os
from dataclasses import dataclass
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Ctx:
    world: int
    rank: int

    def scale(self, y):
        n = (y != -100).sum()
        dist.all_reduce(n)
        return self.world / n



def main():
    dist.init_process_group("gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    net = DDP(nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    ctx = Ctx(world, rank)
    for it in range(50):
        ids = torch.randint(50, (4, 33), generator=gen)
        x, y = ids[:, :-1], ids[:, 1:].masked_fill(torch.rand(4, 32, generator=gen) < 0.2, -100)
        opt.zero_grad()
        nll = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="none")
        (nll.sum() * ctx.scale(y)).backward()
        opt.step()


main()
