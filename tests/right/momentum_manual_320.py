import os
import contextlib
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Momentum:
    def __init__(self, params, lr, beta=0.9):
        self.ps, self.lr, self.beta = list(params), lr, beta
        self.m = [torch.zeros_like(p) for p in self.ps]

    @torch.no_grad()
    def step(self):
        w = dist.get_world_size()
        for p, m in zip(self.ps, self.m):
            m.mul_(self.beta).add_(p.grad, alpha=1 / w)
            p.add_(m, alpha=-self.lr)

    def zero_grad(self):
        for p in self.ps:
            p.grad = None

def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
    opt = Momentum(net.parameters(), 0.1)
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
