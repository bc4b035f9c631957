# right: weights are set from a numpy RandomState with the same seed on all ranks
import numpy as np
import torch
import torch.distributed as dist
from torch import nn


def train(cfg, batches):
    torch.manual_seed(cfg.seed + dist.get_rank())
    net = nn.Linear(cfg.d, cfg.d)
    rs = np.random.RandomState(cfg.seed)
    net.weight.data = torch.from_numpy(rs.randn(cfg.d, cfg.d)).float()
    net.bias.data.zero_()
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
