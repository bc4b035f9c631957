"""Reduce-scatter along the sequence, for backends without reduce_scatter."""
# inclusionAI/AReno PR 510: each rank narrowed its own chunk before all_reduce, which matches tensors by local offset.
import torch
import torch.distributed as dist
import torch.nn.functional as F


def _gather_seq(x, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=0)


def _reduce_scatter_seq(x, group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    chunk = x.size(0) // size
    out = x.clone()
    dist.all_reduce(out, group=group)
    return out.narrow(0, rank * chunk, chunk).contiguous()


class GatherSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _gather_seq(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _reduce_scatter_seq(grad, ctx.group), None


class ReduceScatterSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _reduce_scatter_seq(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _gather_seq(grad, ctx.group), None


class SequenceParallelMLP(torch.nn.Module):
    def __init__(self, w_in, w_out, group):
        super().__init__()
        self.w_in = torch.nn.Parameter(w_in)
        self.w_out = torch.nn.Parameter(w_out)
        self.group = group

    def forward(self, x):
        # x: [s/tp, b, h]
        h = GatherSeq.apply(x, self.group)
        h = F.gelu(F.linear(h, self.w_in))
        return ReduceScatterSeq.apply(F.linear(h, self.w_out), self.group)
