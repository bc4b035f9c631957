# RIGHT: per-head gate module on split heads between the fused projections
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


class HeadGate(nn.Module):
    def __init__(self, heads, tp_group):
        super().__init__()
        self.gate = nn.Parameter(torch.ones(heads // dist.get_world_size(tp_group)))

    def forward(self, o):
        return o * self.gate[:, None]


class SplitBias(nn.Module):
    def __init__(self, d, tp_group):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(d // dist.get_world_size(tp_group)))

    def forward(self, x):
        return F.gelu(x + self.bias)
