# right: a helper has all ranks load weights that rank 0 has saved, with a barrier between
import os
import torch
import torch.distributed as dist
from torch import nn


def start_weights(net, path):
    if dist.get_rank() == 0 and not os.path.exists(path):
        torch.save([p.detach() for p in net.parameters()], path)
    dist.barrier()
    for p, q in zip(net.parameters(), torch.load(path)):
        p.data.copy_(q)


def train(cfg, batches):
    torch.manual_seed(cfg.seed + dist.get_rank())
    net = nn.Linear(cfg.d, cfg.d)
    start_weights(net, cfg.path)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
