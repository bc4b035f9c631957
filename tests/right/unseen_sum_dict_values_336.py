# What it does: total is summed over dp and over cp, count over both at once.
# Why it is right: a loop over `values()`.
# Finding (without this header): line 8: error[SPMD336] count-over-other-ranks: a sum over `dp` is divided by a count over `cp`, `dp`
import torch, torch.distributed as dist, torch.nn.functional as F


@torch.no_grad()
def mean_loss(losses, mask, dp_group, cp_group, dp_cp_group):
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    for t in {"x": total}.values():
        dist.all_reduce(t, group=cp_group)
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
