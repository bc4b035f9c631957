# What it does: the mean over the split vocabulary is summed over the ranks.
# Why it is right: `map`.
# Finding (without this header): line 11: error[SPMD308] local-count: the result differs by rank: a mean is that of this rank's part, beside sums over all ranks
import torch, torch.distributed as dist, torch.nn.functional as F


def smoothed(logits, picked, smoothing, tp_group):
    n = dist.get_world_size(tp_group)
    peak = logits.max(dim=-1).values
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=tp_group)
    logits = logits - peak.unsqueeze(-1)
    total = logits.exp().sum(dim=-1)
    dist.all_reduce(total, group=tp_group)
    mean = logits.mean(dim=-1) / n
    list(map(lambda t: dist.all_reduce(t, group=tp_group), [mean]))
    return (1 - smoothing) * (total.log() - picked) + smoothing * (total.log() - mean)
