# What it does: correct and seen are both summed over dp_group, then divided.
# Why it is right: a method sums in place.
# Finding (without this header): line 15: error[SPMD308] local-count: a sum over all ranks is divided by the count of this rank alone
import torch, torch.distributed as dist, torch.nn.functional as F


class Comm:
    def __init__(self, group):
        self.group = group

    def sum_(self, t):
        dist.all_reduce(t, group=self.group)


@torch.no_grad()
def accuracy(pred, y, dp_group):
    correct = (pred.argmax(-1) == y).sum()
    seen = (y != -100).sum()
    dist.all_reduce(correct, group=dp_group)
    Comm(dp_group).sum_(seen)
    return (correct / seen).item()
