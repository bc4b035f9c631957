import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate


class VocabTable(nn.Module):
    def __init__(self, rows, width, mesh):
        super().__init__()
        own = rows // mesh.size()
        self.vocab_start = mesh.get_local_rank() * own
        self.vocab_end = self.vocab_start + own
        self.weight = nn.Parameter(torch.empty(own, width))

    def forward(self, ids):
        outside = (ids < self.vocab_start) | (ids >= self.vocab_end)
        local = (ids - self.vocab_start).masked_fill(outside, 0)
        rows = F.embedding(local, self.weight)
        rows = rows.masked_fill(outside.unsqueeze(-1), 0)
        return rows


class Encoder(nn.Module):
    def __init__(self, rows, width, layers, mesh):
        super().__init__()
        self.mesh = mesh
        self.words = VocabTable(rows, width, mesh)
        self.layers = layers

    def forward(self, ids):
        h = self.words(ids)
        h = DTensor.from_local(h, self.mesh, [Partial()], run_check=False)
        return self.layers(h)
