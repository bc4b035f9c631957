# right: rows of all tables are appended to a list and summed over ranks by the caller
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class VocabSlice(nn.Module):
    def __init__(self, rows, width, group):
        super().__init__()
        self.group = group
        own = rows // dist.get_world_size(group)
        self.vocab_start = own * dist.get_rank(group)
        self.vocab_end = self.vocab_start + own
        self.weight = nn.Parameter(torch.empty(own, width))

    def forward(self, ids):
        away = (ids < self.vocab_start) | (ids >= self.vocab_end)
        x = F.embedding((ids - self.vocab_start).masked_fill(away, 0), self.weight)
        x[away] = 0.0
        return x


class TakeSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class Multi(nn.Module):
    def __init__(self, sizes, width, group):
        super().__init__()
        self.group = group
        self.tables = nn.ModuleList([VocabSlice(n, width, group) for n in sizes])

    def forward(self, features):
        outs = []
        for table, f in zip(self.tables, features):
            outs.append(table(f))
        return TakeSum.apply(torch.stack(outs, 1), self.group)
