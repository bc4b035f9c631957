"""Where no group is given it is that of the tensor-parallel ranks, for each of the three."""

import torch
import torch.distributed as dist
from megatron.core.parallel_state import get_context_parallel_group, get_tensor_model_parallel_group


@torch.no_grad()
def losses(logits, target, first, last, tp_group=None):
    peak = logits.max(dim=-1).values
    if tp_group is None:
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=get_tensor_model_parallel_group())
    else:
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=tp_group)
    shifted = logits - peak.unsqueeze(-1)
    outside = (target < first) | (target >= last)
    local = (target - first).masked_fill(outside, 0)
    entry = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1)
    entry[outside] = 0.0
    total = shifted.exp().sum(dim=-1)
    for piece in (entry, total):
        dist.all_reduce(piece, group=tp_group or get_tensor_model_parallel_group())
    return total.log() - entry


def attention_of_parts(scores, values, keys_are_split):
    """The keys are split over the context-parallel ranks, or over none."""
    peak = scores.amax(dim=-1, keepdim=True)
    if keys_are_split:
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=get_context_parallel_group())
    weights = (scores - peak).exp()
    total = weights.sum(dim=-1, keepdim=True)
    out = weights @ values
    if keys_are_split:
        dist.all_reduce(total, group=get_context_parallel_group())
        dist.all_reduce(out, group=get_context_parallel_group())
    return out / total
