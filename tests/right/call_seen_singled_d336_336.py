# Right: the total is summed over dp and then cp, the count over both at once; summed in place by a singledispatch function of this file.
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


def mean_loss(loss_sum, mask, dp_group, cp_group, dp_cp_group):
    total = (loss_sum * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    sum_ranks(total, cp_group)
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
