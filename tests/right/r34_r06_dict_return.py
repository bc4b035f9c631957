import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region


class VocabTable(nn.Module):
    def __init__(self, rows, width, group):
        super().__init__()
        own = rows // dist.get_world_size(group)
        self.first_row = dist.get_rank(group) * own
        self.last_row = self.first_row + own
        self.weight = nn.Parameter(torch.empty(own, width))

    def forward(self, ids):
        inside = (ids >= self.first_row) & (ids < self.last_row)
        local = (ids - self.first_row) * inside
        rows = F.embedding(local, self.weight) * inside.unsqueeze(-1)
        return rows


class Front(nn.Module):
    def __init__(self, rows, width, group):
        super().__init__()
        self.table = VocabTable(rows, width, group)

    def forward(self, batch):
        out = dict(batch)
        out["hidden"] = self.table(batch["ids"]).transpose(0, 1)
        return out


class Model(nn.Module):
    def __init__(self, rows, width, layers, group):
        super().__init__()
        self.front = Front(rows, width, group)
        self.layers = layers

    def forward(self, batch):
        batch = self.front(batch)
        return self.layers(reduce_scatter_to_sequence_parallel_region(batch["hidden"].contiguous()))
