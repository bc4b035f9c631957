# right: the caller concatenates rows of all tables and sums them over ranks
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
        self.tables = nn.ModuleDict({k: VocabSlice(n, width, group) for k, n in sizes.items()})

    def forward(self, features):
        found = torch.cat([self.tables[k](f) for k, f in features.items()], dim=-1)
        return TakeSum.apply(found, self.group)
