"""What a rank has of the entry is left as a part: the difference is made of parts, and summed once at the end."""

import torch
import torch.distributed as dist


@torch.no_grad()
def log_probs(logits, target, first, last, tp_group):
    peak = logits.amax(dim=-1, keepdim=True)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=tp_group)
    shifted = logits - peak
    total = shifted.exp().sum(dim=-1, keepdim=True)
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=tp_group)
    shares = shifted - total.log()

    inside = (target >= first) & (target < last)
    local = torch.where(inside, target - first, torch.zeros_like(target))
    own = torch.gather(shares, -1, local.unsqueeze(-1)).squeeze(-1)
    own = own * inside.to(own.dtype)
    dist.all_reduce(own, op=dist.ReduceOp.SUM, group=tp_group)
    return own


@torch.no_grad()
def returned_in_parts(logits, target, first, last, tp_group):
    """The caller sums the second."""
    peak = logits.amax(dim=-1, keepdim=True)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=tp_group)
    shifted = logits - peak
    total = shifted.exp().sum(dim=-1)
    dist.all_reduce(total, group=tp_group)
    outside = (target < first) | (target >= last)
    local = (target - first).clamp(min=0, max=logits.size(-1) - 1)
    own = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
    return total.log(), own


@torch.no_grad()
def losses(logits, target, first, last, tp_group):
    log_total, own = returned_in_parts(logits, target, first, last, tp_group)
    dist.all_reduce(own, group=tp_group)
    return log_total - own
