# What it does: correct and seen are both summed over dp_group, then divided.
# Why it is right: a static method sums in place.
# Finding (without this header): line 13: error[SPMD308] local-count: a sum over all ranks is divided by the count of this rank alone
import torch, torch.distributed as dist, torch.nn.functional as F


class Comm:
    @staticmethod
    def sum_(t, group):
        dist.all_reduce(t, group=group)


@torch.no_grad()
def accuracy(pred, y, dp_group):
    correct = (pred.argmax(-1) == y).sum()
    seen = (y != -100).sum()
    dist.all_reduce(correct, group=dp_group)
    Comm.sum_(seen, dp_group)
    return (correct / seen).item()
