"""Gated MLP with tensor parallelism."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from picotron.tensor_parallel.tp_communications import (
    CopyToModelParallelRegion,
    ReduceFromModelParallelRegion,
)


class ColumnParallelLinear(nn.Module):
    def __init__(self, weight_shard):
        super().__init__()
        self.weight = nn.Parameter(weight_shard)  # [out/tp, in]

    def forward(self, x):
        return F.linear(CopyToModelParallelRegion.apply(x), self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, weight_shard):
        super().__init__()
        self.weight = nn.Parameter(weight_shard)  # [out, in/tp]

    def forward(self, x):
        return ReduceFromModelParallelRegion.apply(F.linear(x, self.weight))


class GatedMLP(nn.Module):
    def __init__(self, gate, up, down):
        super().__init__()
        self.gate_proj = ColumnParallelLinear(gate)
        self.up_proj = ColumnParallelLinear(up)
        self.down_proj = RowParallelLinear(down)

    def forward(self, x):
        x = CopyToModelParallelRegion.apply(x)  # BUG
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
