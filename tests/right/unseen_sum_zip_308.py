# What it does: correct and seen are both summed over dp_group, then divided.
# Why it is right: a loop over `zip`.
# Finding (without this header): line 7: error[SPMD308] local-count: a sum over all ranks is divided by the count of this rank alone
import torch, torch.distributed as dist, torch.nn.functional as F


@torch.no_grad()
def accuracy(pred, y, dp_group):
    correct = (pred.argmax(-1) == y).sum()
    seen = (y != -100).sum()
    dist.all_reduce(correct, group=dp_group)
    for t, g in zip([seen], [dp_group]):
        dist.all_reduce(t, group=g)
    return (correct / seen).item()
