# RIGHT: sequence parallel: gather with reduce-scatter backward stands before the column layer, Copy is for later use
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


class GatherSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        n = dist.get_world_size(group)
        out = x.new_empty(n * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        n = dist.get_world_size(ctx.group)
        out = grad.new_empty(grad.shape[0] // n, *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class SplitSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.chunk(dist.get_world_size(group), dim=0)[dist.get_rank(group)].contiguous()

    @staticmethod
    def backward(ctx, grad):
        n = dist.get_world_size(ctx.group)
        out = grad.new_empty(n * grad.shape[0], *grad.shape[1:])
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class MLP(nn.Module):
    def __init__(self, d, tp_group):
        super().__init__()
        self.group = tp_group
        self.up = ColumnParallelLinear(d, 4 * d, tp_group)
        self.down = RowParallelLinear(4 * d, d, tp_group)

    def forward(self, x):
        x = GatherSeq.apply(x, self.group)
        return SplitSeq.apply(self.down(F.gelu(self.up(x))), self.group)
