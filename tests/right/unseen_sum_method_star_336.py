# What it does: total is summed over dp and over cp, count over both at once.
# Why it is right: a method with `*args` sums in place.
# Finding (without this header): line 17: error[SPMD336] count-over-other-ranks: a sum over `dp` is divided by a count over `cp`, `dp`
import torch, torch.distributed as dist, torch.nn.functional as F


class Comm:
    def __init__(self, group):
        self.group = group

    def sum_(self, *ts):
        for t in ts:
            dist.all_reduce(t, group=self.group)


@torch.no_grad()
def mean_loss(losses, mask, dp_group, cp_group, dp_cp_group):
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    Comm(cp_group).sum_(total)
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
