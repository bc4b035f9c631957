# What it does: correct and seen are both summed over dp_group, then divided.
# Why it is right: summed in double, and copied back.
# Finding (without this header): line 7: error[SPMD308] local-count: a sum over all ranks is divided by the count of this rank alone
import torch, torch.distributed as dist, torch.nn.functional as F


@torch.no_grad()
def accuracy(pred, y, dp_group):
    correct = (pred.argmax(-1) == y).sum()
    seen = (y != -100).sum()
    dist.all_reduce(correct, group=dp_group)
    c = seen.double()
    dist.all_reduce(c, group=dp_group)
    seen.copy_(c)
    return (correct / seen).item()
