"""A mean over the ranks is multiplied by their number: that is the sum."""

import torch
import torch.distributed as dist


@torch.no_grad()
def losses(logits, target, first, last, tp_group):
    ranks = dist.get_world_size(tp_group)
    peak = logits.max(dim=-1).values
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=tp_group)
    shifted = logits - peak.unsqueeze(-1)
    total = shifted.exp().sum(dim=-1)
    dist.all_reduce(total, op=dist.ReduceOp.AVG, group=tp_group)
    total *= ranks

    outside = (target < first) | (target >= last)
    local = (target - first).masked_fill(outside, 0)
    entry = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1)
    entry = entry.masked_fill(outside, 0.0)
    dist.all_reduce(entry, op=dist.ReduceOp.AVG, group=tp_group)
    entry.mul_(ranks)
    return total.log() - entry


@torch.no_grad()
def mean_peak(logits, tp_group):
    """Any number that all ranks agree on may be taken off."""
    peak = logits.max(dim=-1).values
    dist.all_reduce(peak, group=tp_group)
    peak = peak / dist.get_world_size(tp_group)
    total = (logits - peak.unsqueeze(-1)).exp().sum(dim=-1)
    dist.all_reduce(total, group=tp_group)
    return total.log() + peak
