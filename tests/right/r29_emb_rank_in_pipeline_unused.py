# right: the range is one of lengths, the table is whole: the rank only says who prints
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class LengthBucketEmbedding(nn.Module):
    def __init__(self, bins, dim):
        super().__init__()
        self.rank = dist.get_rank()
        self.min_len, self.max_len = 4, 4 + bins
        self.weight = nn.Parameter(torch.zeros(bins, dim))

    def forward(self, lengths):
        outside = (lengths < self.min_len) | (lengths >= self.max_len)
        rows = F.embedding((lengths - self.min_len).masked_fill(outside, 0), self.weight)
        rows[outside] = 0.0
        if self.rank == 0 and outside.any():
            print("lengths outside of the table", int(outside.sum()))
        return rows
