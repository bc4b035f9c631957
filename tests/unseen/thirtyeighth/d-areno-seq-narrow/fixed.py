"""Sequence-parallel collectives and a row-parallel linear."""
# thread: inclusionAI/AReno#510
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from areno.distributed.parallel_state import get_tp_group


def _all_gather_sequence(x: torch.Tensor, group) -> torch.Tensor:
    world = dist.get_world_size(group)
    out = torch.empty((x.size(0) * world, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def _reduce_scatter_sequence(x: torch.Tensor, group) -> torch.Tensor:
    """Sum over the group, keep this rank's chunk of the packed tokens (dim 0)."""
    world = dist.get_world_size(group)
    chunk = x.size(0) // world
    out = torch.empty((chunk, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class _ReduceScatterToSequenceRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _reduce_scatter_sequence(x, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _all_gather_sequence(grad_output, ctx.group), None


class _GatherFromSequenceRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _all_gather_sequence(x, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce_scatter_sequence(grad_output, ctx.group), None


class ParallelMLP(nn.Module):
    def __init__(self, hidden_size, ffn_size):
        super().__init__()
        self.group = get_tp_group()
        tp = dist.get_world_size(self.group)
        self.gate_up = nn.Parameter(torch.empty(2 * ffn_size // tp, hidden_size))
        self.down = nn.Parameter(torch.empty(hidden_size, ffn_size // tp))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [tokens / tp, hidden], packed sequences, padded to a multiple of tp."""
        x = _GatherFromSequenceRegion.apply(x, self.group)
        gate, up = F.linear(x, self.gate_up).chunk(2, dim=-1)
        out = F.linear(F.silu(gate) * up, self.down)
        return _ReduceScatterToSequenceRegion.apply(out, self.group)
