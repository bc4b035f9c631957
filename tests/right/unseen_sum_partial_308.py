# What it does: correct and seen are both summed over dp_group, then divided.
# Why it is right: `functools.partial`.
# Finding (without this header): line 8: error[SPMD308] local-count: a sum over all ranks is divided by the count of this rank alone
import torch, torch.distributed as dist, torch.nn.functional as F
from functools import partial


@torch.no_grad()
def accuracy(pred, y, dp_group):
    correct = (pred.argmax(-1) == y).sum()
    seen = (y != -100).sum()
    dist.all_reduce(correct, group=dp_group)
    partial(dist.all_reduce, group=dp_group)(seen)
    return (correct / seen).item()
