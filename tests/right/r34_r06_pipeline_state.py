import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_reduce


class VocabTable(nn.Module):
    def __init__(self, rows, width, group):
        super().__init__()
        own = rows // dist.get_world_size(group)
        self.vocab_start = dist.get_rank(group) * own
        self.vocab_end = self.vocab_start + own
        self.weight = nn.Parameter(torch.empty(own, width))

    def forward(self, ids):
        outside = (ids < self.vocab_start) | (ids >= self.vocab_end)
        local = (ids - self.vocab_start).masked_fill(outside, 0)
        rows = F.embedding(local, self.weight)
        rows[outside] = 0.0
        return rows


class Encoder(nn.Module):
    def __init__(self, rows, width, layers, group):
        super().__init__()
        self.group = group
        self.words = VocabTable(rows, width, group)
        self.layers = layers
        self.hidden = None

    def lookup(self, ids):
        self.hidden = self.words(ids)

    def forward(self, ids):
        self.lookup(ids)
        return self.layers(all_reduce(self.hidden, group=self.group))
