# RIGHT: gather via torch.distributed.nn.functional.all_gather (backward reduce-scatter-sums); out is the own slice of the row output
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


class ColumnParallelLinear(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out // dist.get_world_size(tp_group), n_in))

    def forward(self, x):
        return F.linear(x, self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out, n_in // dist.get_world_size(tp_group)))

    def forward(self, x):
        return Reduce.apply(F.linear(x, self.weight), self.group)


import torch.distributed.nn.functional as dfn


class MLP(nn.Module):
    def __init__(self, d, tp_group):
        super().__init__()
        self.group = tp_group
        self.up = ColumnParallelLinear(d, 4 * d, tp_group)
        self.down = nn.Parameter(torch.empty(d, 4 * d // dist.get_world_size(tp_group)))

    def forward(self, x):
        x = torch.cat(dfn.all_gather(x, group=self.group), dim=0)
        y = F.linear(F.gelu(self.up(x)), self.down)
        parts = [p.contiguous() for p in y.chunk(dist.get_world_size(self.group), dim=0)]
        return dfn.reduce_scatter(torch.empty_like(parts[0]), parts, group=self.group)
