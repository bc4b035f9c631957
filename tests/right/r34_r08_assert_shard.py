import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Shard


class Grouped(nn.Module):
    def __init__(self, w1, w2, group_size):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(w1), nn.Parameter(w2)

    def forward(self, x):
        assert isinstance(x, DTensor) and x.placements == (Shard(2),), "features are split"
        mesh = x.device_mesh
        x = x.to_local()
        h = F.linear(x, self.w1.to_local())
        h = F.linear(F.relu(h), self.w2.to_local())
        return DTensor.from_local(h, mesh, [Partial()])
