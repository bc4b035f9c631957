# Right: the pending sum is completed over tp before gelu; nothing needs a gradient; summed in place by a cached_property that returns partial(dist.all_reduce, group=...).
from functools import cached_property, partial
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Comm:
    def __init__(self, group):
        self.group = group

    @cached_property
    def all_reduce(self):
        return partial(dist.all_reduce, group=self.group)


# spmd: mesh dense = tp
# spmd: group tp_group = tp
# spmd: h: {tp: S(-1)}, weight: {tp: S(1)}
@torch.no_grad()
def activate(h, weight, tp_group):
    comm = Comm(tp_group)
    y = F.linear(h, weight)
    comm.all_reduce(y)
    return F.gelu(y)
