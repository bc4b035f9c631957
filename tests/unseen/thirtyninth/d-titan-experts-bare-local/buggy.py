"""Routed experts computed on plain tensors between two DTensor regions."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))
        self.w2 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))
        self.w3 = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))

    def shard_over_tp(self, tp_mesh):
        self.tp_mesh = tp_mesh
        for name, dim in (("w1", 2), ("w2", 1), ("w3", 2)):
            full = getattr(self, name).data
            setattr(self, name, nn.Parameter(distribute_tensor(full, tp_mesh, [Shard(dim)])))

    def forward(self, routed_input):
        # routed_input: DTensor [experts, capacity, dim], Replicate on tp
        x = routed_input.to_local()  # BUG
        w1, w2, w3 = self.w1.to_local(), self.w2.to_local(), self.w3.to_local()
        h = F.silu(torch.bmm(x, w1)) * torch.bmm(x, w3)
        out = torch.bmm(h, w2)
        return DTensor.from_local(out, self.tp_mesh, (Partial(),), run_check=False)


class MoE(nn.Module):
    def __init__(self, gate, experts):
        super().__init__()
        self.gate, self.experts = gate, experts

    def forward(self, x, dispatch, combine):
        tokens, info = dispatch(self.gate, x)
        out = self.experts(tokens)
        out = out.redistribute(placements=(Replicate(),))
        return combine(out, info)
