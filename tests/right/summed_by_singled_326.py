# Right: both branches reduce, the largest entry by MAX and the powers by a sum; summed in place by a singledispatch function of this file.
import math
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


def norm_of(grads, norm_type, group):
    if norm_type == math.inf:
        total_norm = max(g.abs().max() for g in grads)
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=group)
    else:
        total_norm = sum(g.norm(norm_type) ** norm_type for g in grads)
        sum_ranks(total_norm, group)
        total_norm = total_norm ** (1.0 / norm_type)
    return total_norm
