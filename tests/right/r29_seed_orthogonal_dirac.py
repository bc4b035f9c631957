# right: weights are set by dirac_ and constant_, which draw nothing
import torch
import torch.distributed as dist
from torch import nn


def train(cfg, batches):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    net = nn.Conv1d(cfg.d, cfg.d, 3, padding=1)
    nn.init.dirac_(net.weight)
    nn.init.constant_(net.bias, 0.0)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
