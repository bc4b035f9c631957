# right: the state of a common seed is set before the model, and the own one after
import torch
import torch.distributed as dist
from torch import nn


def train(cfg, batches):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    common = torch.Generator().manual_seed(cfg.seed).get_state()
    own = torch.get_rng_state()
    torch.set_rng_state(common)
    net = nn.Linear(cfg.d, cfg.c)
    torch.set_rng_state(own)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
