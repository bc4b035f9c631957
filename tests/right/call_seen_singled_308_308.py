# Right: the count is summed over the same ranks as the total; summed in place by a singledispatch function of this file.
from functools import singledispatch
import torch
import torch.distributed as dist


@singledispatch
def sum_ranks(x, group):
    raise TypeError(type(x))


@sum_ranks.register
def _(x: torch.Tensor, group):
    dist.all_reduce(x, group=group)


@sum_ranks.register
def _(x: list, group):
    for t in x:
        dist.all_reduce(t, group=group)


@torch.no_grad()
def evaluate(losses, labels, dp_group):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    sum_ranks(count, dp_group)
    return (total / count).item()
