# What it does: correct and seen are both summed over dp_group, then divided.
# Why it is right: a helper with `**kwargs` sums in place.
# Finding (without this header): line 12: error[SPMD308] local-count: a sum over all ranks is divided by the count of this rank alone
import torch, torch.distributed as dist, torch.nn.functional as F


def sum_all(group, **ts):
    for k in ts:
        dist.all_reduce(ts[k], group=group)


@torch.no_grad()
def accuracy(pred, y, dp_group):
    correct = (pred.argmax(-1) == y).sum()
    seen = (y != -100).sum()
    dist.all_reduce(correct, group=dp_group)
    sum_all(dp_group, x=seen)
    return (correct / seen).item()
