# What it does: the mean over the split vocabulary is summed over the ranks.
# Why it is right: a helper sums a list in place.
# Finding (without this header): line 16: error[SPMD308] local-count: the result differs by rank: a mean is that of this rank's part, beside sums over all ranks
import torch, torch.distributed as dist, torch.nn.functional as F


def sum_all(ts, group):
    for t in ts:
        dist.all_reduce(t, group=group)


def smoothed(logits, picked, smoothing, tp_group):
    n = dist.get_world_size(tp_group)
    peak = logits.max(dim=-1).values
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=tp_group)
    logits = logits - peak.unsqueeze(-1)
    total = logits.exp().sum(dim=-1)
    dist.all_reduce(total, group=tp_group)
    mean = logits.mean(dim=-1) / n
    sum_all([mean], tp_group)
    return (1 - smoothing) * (total.log() - picked) + smoothing * (total.log() - mean)
