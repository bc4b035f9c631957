import torch
import torch.distributed as dist
from torch import nn


class _Enter(torch.autograd.Function):
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


def across(x, group):
    return _Enter.apply(x, group)


class RMSNorm(nn.Module):
    def __init__(self, dim, group, eps=1e-6):
        super().__init__()
        self.dim, self.group, self.eps = dim, group, eps
        self.weight = nn.Parameter(torch.ones(dim // dist.get_world_size(group)))

    def forward(self, x):
        var = x.pow(2).sum(-1, keepdim=True) / self.dim
        var = across(var, self.group)
        return self.weight * (x * torch.rsqrt(var + self.eps))
