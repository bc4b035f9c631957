# right: the caller joins rows with other unsummed terms and sums both at once
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


class Parallel(nn.Module):
    """The rows and a row-parallel projection of image features have to be summed both: once for the two."""

    def __init__(self, cfg, group):
        super().__init__()
        self.group = group
        self.words = VocabSlice(cfg.vocab, cfg.dim, group)
        self.image = nn.Linear(cfg.pixels // dist.get_world_size(group), cfg.dim, bias=False)

    def forward(self, ids, pixels):
        mine = pixels.chunk(dist.get_world_size(self.group), -1)[dist.get_rank(self.group)]
        both = torch.cat([self.image(mine), self.words(ids)], dim=1)
        return TakeSum.apply(both, self.group)
