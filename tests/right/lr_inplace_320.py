import os
import contextlib
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    """plain SGD on summed gradients; the learning rate is divided"""
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for g in opt.param_groups:
        g["lr"] /= world
    gen = torch.Generator().manual_seed(100 + rank)
    for _ in range(30):
        x, y = torch.randn(8, 8, generator=gen).cuda(), torch.randint(3, (8,), generator=gen).cuda()
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        opt.step()
    dist.destroy_process_group()


main()
