"""Data parallel by hand; the reduction takes an unusual road."""
import functools
import os
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch import nn
from torch.distributed import all_reduce as ar, ReduceOp


def main():
    dist.init_process_group("gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    gen = torch.Generator().manual_seed(rank)

    for it in range(50):
        x = torch.randn(32, 10, generator=gen)
        y = x[:, :4].argmax(1)
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        gs = [p.grad for p in net.parameters()]
        ws = [dist.all_reduce(g, async_op=True) for g in gs]
        for g, w in zip(gs, ws):
            w.wait()
            g.div_(world)
        opt.step()


main()
