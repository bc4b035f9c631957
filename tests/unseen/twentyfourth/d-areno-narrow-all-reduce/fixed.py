"""Reduce-scatter along the sequence behind a row-parallel linear.

After inclusionAI/AReno PR #510 (CUDA tensor/sequence-parallel collectives).
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def all_gather_sequence(x, group):
    out = torch.empty(x.size(0) * dist.get_world_size(group), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def reduce_scatter_sequence(x, group):
    """Sum the partial results of the ranks and keep this rank's rows."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    rows = x.size(0) // world
    dist.all_reduce(x, group=group)
    return x.narrow(0, rank * rows, rows).contiguous()


class _GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return all_gather_sequence(x, group)

    @staticmethod
    def backward(ctx, grad):
        return reduce_scatter_sequence(grad.contiguous().clone(), ctx.group), None


class _ReduceScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return reduce_scatter_sequence(x.contiguous().clone(), group)

    @staticmethod
    def backward(ctx, grad):
        return all_gather_sequence(grad, ctx.group), None


class SharedExpert(nn.Module):
    """Dense expert, tensor parallel, inside the sequence-parallel region."""

    def __init__(self, hidden, ffn, tp_group):
        super().__init__()
        self.tp_group = tp_group
        local = ffn // dist.get_world_size(tp_group)
        self.gate_proj = nn.Linear(hidden, local, bias=False)
        self.up_proj = nn.Linear(hidden, local, bias=False)
        self.down_proj = nn.Linear(local, hidden, bias=False)

    def forward(self, x):
        # x: [tokens / tp, hidden]
        x = _GatherSequence.apply(x, self.tp_group)
        x = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return _ReduceScatterSequence.apply(x, self.tp_group)
