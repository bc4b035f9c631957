# right: weights are set from linspace and a constant
import torch
import torch.distributed as dist
from torch import nn


def train(cfg, batches):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    net = nn.Linear(cfg.d, cfg.c)
    with torch.no_grad():
        net.weight.copy_(torch.linspace(-0.1, 0.1, net.weight.numel()).view_as(net.weight))
        net.bias.fill_(0.0)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
