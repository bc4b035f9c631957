# RIGHT: per-head projection: heads split over tp, each rank multiplies its own heads with its own matrices
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
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class RowParallelLinear(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out, n_in // dist.get_world_size(tp_group)))

    def forward(self, x):
        return Reduce.apply(F.linear(x, self.weight), self.group)


class HeadMix(nn.Module):
    def __init__(self, heads, dim, tp_group):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads // dist.get_world_size(tp_group), dim, dim))

    def forward(self, q):
        return torch.matmul(q, self.weight)


class Scale(nn.Module):
    def __init__(self, d, tp_group):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d // dist.get_world_size(tp_group)))

    def forward(self, x):
        return x * self.weight
