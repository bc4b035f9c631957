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


class Wide(nn.Module):
    """A fixed random projection behind the table: linear, so it may come before the sum."""

    def __init__(self, rows, width, wide, group):
        super().__init__()
        self.table = VocabTable(rows, width, group)
        self.register_buffer("projection", torch.randn(width, wide, generator=torch.Generator().manual_seed(0)))

    def forward(self, ids):
        h = self.table(ids)
        return h @ self.projection


class Model(nn.Module):
    def __init__(self, rows, width, wide, layers, group):
        super().__init__()
        self.front = Wide(rows, width, wide, group)
        self.layers = layers

    def forward(self, ids):
        return self.layers(reduce_from_tensor_model_parallel_region(self.front(ids)))
