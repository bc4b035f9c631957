"""Tensor parallel MLP with its own f and g; the batch is the same on all ranks of tp."""
import contextlib
import functools
from typing import NamedTuple
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dfn
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch import nn

class Tp(NamedTuple):
    group: object
    size: int


TP = None


class _F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp):
        ctx.tp = tp
        return x.view_as(x)

    @staticmethod
    def backward(ctx, d):
        if ctx.tp.size > 1:
            d = d.clone()
            dist.all_reduce(d, group=ctx.tp.group)
        return d, None


class _G(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp):
        if tp.size == 1:
            return x
        x = x.clone()
        dist.all_reduce(x, group=tp.group)
        return x

    @staticmethod
    def backward(ctx, d):
        return d, None


def f(x):
    return _F.apply(x, TP)


def g(x):
    return _G.apply(x, TP)


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        n = dist.get_world_size()
        self.norm = nn.LayerNorm(d)
        self.w1 = nn.Parameter(torch.empty(4 * d // n, d))
        self.b1 = nn.Parameter(torch.zeros(4 * d // n))
        self.w2 = nn.Parameter(torch.empty(d, 4 * d // n))
        self.b2 = nn.Parameter(torch.zeros(d))
        g = torch.Generator().manual_seed(dist.get_rank())
        nn.init.normal_(self.w1, std=0.02, generator=g)
        nn.init.normal_(self.w2, std=0.02, generator=g)

    def forward(self, x):
        y = f(self.norm(x))
        y = F.gelu(F.linear(y, self.w1, self.b1))
        y = g(F.linear(y, self.w2))
        return x + y + self.b2


def main():
    dist.init_process_group("gloo")
    global TP
    TP = Tp(dist.group.WORLD, dist.get_world_size())
    net = nn.Sequential(MLP(32), MLP(32))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(5)
    for _ in range(20):
        x = torch.randn(8, 32, generator=gen)
        loss = F.mse_loss(net(x), x.roll(1, 0))
        opt.zero_grad()
        loss.backward()
        opt.step()


main()
