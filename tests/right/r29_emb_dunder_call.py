# right: the subclass that is used sums in __call__
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


class Words(VocabSlice):
    def __call__(self, ids):
        return TakeSum.apply(super().__call__(ids), self.group)


def build(cfg, group):
    return Words(cfg.vocab, cfg.dim, group)
