"""The entry and the sum go round in one tensor; the largest is taken over the same ranks before."""

import torch
import torch.distributed as dist


def pieces(logits, target, first, last, largest):
    shifted = logits - largest.unsqueeze(-1)
    outside = (target < first) | (target >= last)
    local = target - first
    local[outside] = 0
    entry = shifted[torch.arange(local.size(0), device=local.device), local]
    entry[outside] = 0.0
    return entry, shifted.exp().sum(dim=-1)


@torch.no_grad()
def stacked(logits, target, first, last, tp_group):
    largest = logits.max(dim=-1)[0]
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=tp_group)
    entry, total = pieces(logits, target, first, last, largest)
    both = torch.stack([entry, total])
    dist.all_reduce(both, group=tp_group)
    entry, total = both.unbind(0)
    return total.log() - entry


@torch.no_grad()
def joined(logits, target, first, last, tp_group):
    largest = logits.max(dim=-1)[0]
    work = dist.all_reduce(largest, dist.ReduceOp.MAX, group=tp_group, async_op=True)
    work.wait()
    entry, total = pieces(logits, target, first, last, largest)
    both = torch.cat((entry, total))
    dist.all_reduce(both, group=tp_group)
    count = entry.numel()
    return both[count:].log() - both[:count]
