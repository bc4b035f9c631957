import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def sum_identity_grad(x, group):
    """value: the sum over the group; gradient: that of the identity"""
    with torch.no_grad():
        total = x.detach().clone()
        dist.all_reduce(total, group=group)
        rest = total - x
    return x + rest


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class MLP(nn.Module):
    def __init__(self, d, f, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.up = nn.Linear(d, f // n)
        self.down = nn.Linear(f // n, d, bias=False)
        self.bias = nn.Parameter(torch.zeros(d))
        self.group = group

    def forward(self, x):
        h = F.gelu(self.up(Copy.apply(x, self.group)))
        return sum_identity_grad(self.down(h), self.group) + self.bias
