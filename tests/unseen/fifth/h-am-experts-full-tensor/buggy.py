"""Torch dispatcher of grouped experts: gather the tokens, keep the local experts' share."""
import torch
import torch.nn as nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


class GroupedExperts(nn.Module):
    def __init__(self, experts, first, ep_mesh):
        super().__init__()
        self.experts, self.first, self.ep_mesh = nn.ModuleList(experts), first, ep_mesh

    def forward(self, x, weights, indices):
        # x: this rank's tokens; each expert-parallel rank computes its own experts
        x = DTensor.from_local(x, self.ep_mesh, [Shard(0)]).full_tensor()  # BUG: backward slices, no reduce-scatter
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            row, col = torch.where(indices == self.first + i)
            y = y.index_add(0, row, expert(x[row]) * weights[row, col, None])
        y = DTensor.from_local(y, self.ep_mesh, [Partial()])
        return y.redistribute(placements=[Shard(0)]).to_local()
