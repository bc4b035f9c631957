# right: the next module of the Sequential sums it
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Psum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class SumAcross(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, x):
        return Psum.apply(x, self.group)


class RowSlice(nn.Module):
    def __init__(self, n, d, group):
        super().__init__()
        own = n // dist.get_world_size(group)
        self.begin = own * dist.get_rank(group)
        self.end = self.begin + own
        self.weight = nn.Parameter(torch.empty(own, d))

    def forward(self, ids):
        off = (ids < self.begin) | (ids >= self.end)
        x = F.embedding((ids - self.begin).masked_fill(off, 0), self.weight)
        x[off] = 0.0
        return x


def front(n, d, group):
    return nn.Sequential(RowSlice(n, d, group), SumAcross(group), nn.LayerNorm(d), nn.Dropout(0.1))
