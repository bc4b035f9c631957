# right: a function that is given the table sums its rows
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


def embed_and_sum(table, ids, group):
    return TakeSum.apply(table(ids), group)


class LM(nn.Module):
    def __init__(self, cfg, group):
        super().__init__()
        self.group = group
        self.tok = VocabSlice(cfg.vocab, cfg.dim, group)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, ids):
        return self.head(embed_and_sum(self.tok, ids, self.group))
