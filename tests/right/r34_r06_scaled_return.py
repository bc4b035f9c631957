import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


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


class ScaledWords(nn.Module):
    """Gemma scales what it looks up."""

    def __init__(self, rows, width, group):
        super().__init__()
        self.table = VocabTable(rows, width, group)
        self.factor = width**0.5

    def forward(self, ids):
        return self.table(ids) * self.factor


class Model(nn.Module):
    def __init__(self, rows, width, layers, group):
        super().__init__()
        self.words = ScaledWords(rows, width, group)
        self.layers = layers

    def forward(self, ids):
        h = reduce_from_tensor_model_parallel_region(self.words(ids))
        return self.layers(h)
