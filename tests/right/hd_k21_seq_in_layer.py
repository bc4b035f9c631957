# RIGHT: row layer reduce-scatters under sequence parallelism, caller gathers by own function in the attention and MLP classes
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


def gather_sequence(x, group):
    return GatherSeq.apply(x, group)


class GatherSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] // dist.get_world_size(ctx.group), *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(dist.get_world_size(ctx.group) * grad.shape[0], *grad.shape[1:])
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class RowSP(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out, n_in // dist.get_world_size(tp_group)))

    def forward(self, x):
        return ReduceScatter.apply(F.linear(x, self.weight), self.group)


class VocabEmbedding(nn.Module):
    def __init__(self, vocab, d, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(vocab // dist.get_world_size(tp_group), d))

    def forward(self, ids):
        n = self.weight.shape[0]
        first = n * dist.get_rank(self.group)
        mask = (ids < first) | (ids >= first + n)
        out = F.embedding((ids - first).masked_fill(mask, 0), self.weight).masked_fill(mask[..., None], 0.0)
        out = Reduce.apply(out, self.group)
        return SplitSeq.apply(out, self.group)


class SplitSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.chunk(dist.get_world_size(group), dim=0)[dist.get_rank(group)].contiguous()

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(dist.get_world_size(ctx.group) * grad.shape[0], *grad.shape[1:])
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class MLP(nn.Module):
    def __init__(self, d, tp_group):
        super().__init__()
        self.group = tp_group
        self.up = ColumnParallelLinear(d, 4 * d, tp_group)
        self.down = RowSP(4 * d, d, tp_group)

    def forward(self, x):
        return self.down(F.gelu(self.up(gather_sequence(x, self.group))))
