# right: all take the weights of rank 0 from an all_gather
import torch
import torch.distributed as dist
from torch import nn


def train(cfg, batches):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    net = nn.Linear(cfg.d, cfg.c)
    for p in net.parameters():
        every = [torch.empty_like(p.data) for _ in range(world)]
        dist.all_gather(every, p.data)
        p.data.copy_(every[0])
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
