"""Without a group of several ranks nothing is reduced; with one, everything is, in a branch of its own."""

import torch
import torch.distributed as dist


@torch.no_grad()
def token_losses(logits, target, start, end, tp_group=None):
    logits_max = logits.max(dim=-1).values
    if tp_group is not None and dist.get_world_size(tp_group) > 1:
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=tp_group)
        logits = logits - logits_max.unsqueeze(-1)
        outside = (target < start) | (target >= end)
        local = target.clone() - start
        local[outside] = 0
        picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1)
        picked[outside] = 0.0
        sum_exp = logits.exp().sum(dim=-1)
        dist.all_reduce(picked, group=tp_group)
        dist.all_reduce(sum_exp, group=tp_group)
    else:
        logits = logits - logits_max.unsqueeze(-1)
        picked = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        sum_exp = logits.exp().sum(dim=-1)
    return sum_exp.log() - picked


@torch.no_grad()
def plain_or_parts(logits, target, start, end, tp_group, tp_size):
    peak = logits.max(dim=-1).values
    if tp_size == 1:
        return (logits - peak.unsqueeze(-1)).exp().sum(dim=-1).log() + peak
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=tp_group)
    total = (logits - peak.unsqueeze(-1)).exp().sum(dim=-1)
    dist.all_reduce(total, group=tp_group)
    return total.log() + peak
