import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class SumBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class Layer(nn.Module):
    """Squeeze and excitation over channels that are split: the squeezed vector is summed, each rank excites its own channels."""

    def __init__(self, dim, hidden, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group = group
        self.up = nn.Linear(dim, hidden // n)
        self.s1 = nn.Linear(hidden // n, 4, bias=False)
        self.s2 = nn.Linear(4, hidden // n)
        self.down = nn.Linear(hidden // n, dim, bias=False)

    def forward(self, x):
        h = F.gelu(self.up(Copy.apply(x, self.group)))
        s = SumBoth.apply(self.s1(h.mean(1)), self.group).relu()
        h = h * torch.sigmoid(self.s2(s)).unsqueeze(1)
        return x + Reduce.apply(self.down(h), self.group)
