"""Straight-through reduce: the value is the total, the gradient is the identity."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def reduce_from(x, group):
    with torch.no_grad():
        total = x.clone()
        dist.all_reduce(total, group=group)
    return x + (total - x).detach()


class MLP(nn.Module):
    def __init__(self, width, inner, group):
        super().__init__()
        self.group = group
        n = dist.get_world_size(group)
        self.norm = nn.LayerNorm(width)
        self.w_in = nn.Parameter(torch.empty(inner // n, width))
        self.w_out = nn.Parameter(torch.empty(width, inner // n))

    def forward(self, x):
        h = Copy.apply(self.norm(x), self.group)
        y = F.gelu(F.linear(h, self.w_in))
        return x + reduce_from(F.linear(y, self.w_out), self.group)
