# right: the flat vector of weights is averaged at the start
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def train(cfg, batches):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    net = nn.Linear(cfg.d, cfg.c)
    flat = parameters_to_vector(net.parameters()).detach()
    dist.all_reduce(flat)
    vector_to_parameters(flat / world, net.parameters())
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
