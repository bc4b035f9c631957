"""Experts as a local region: inputs and scores are replicated and feed split weights, so their gradients are partial in the region."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map


def run_experts(x, scores, w1, w2, counts):
    hidden = F.silu(torch._grouped_mm(x, w1.transpose(-2, -1), offs=counts))
    return torch._grouped_mm(hidden, w2.transpose(-2, -1), offs=counts) * scores.unsqueeze(-1)


def make_experts(tp_mesh):
    return local_map(
        run_experts,
        out_placements=[Partial()],
        in_placements=([Replicate()], [Replicate()], [Shard(1)], [Shard(2)], None),
        in_grad_placements=([Partial()], [Partial()], [Shard(1)], [Shard(2)], None),
        device_mesh=tp_mesh,
    )


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden, num_experts):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, hidden, dim))
        self.w2 = nn.Parameter(torch.empty(num_experts, dim, hidden))
        self.run = None

    def parallelize(self, tp_mesh):
        self.w1 = nn.Parameter(distribute_tensor(self.w1.data, tp_mesh, [Shard(1)]))
        self.w2 = nn.Parameter(distribute_tensor(self.w2.data, tp_mesh, [Shard(2)]))
        self.run = make_experts(tp_mesh)

    def forward(self, x, scores, counts):
        out = self.run(x, scores, self.w1, self.w2, counts)
        return out.redistribute(placements=[Replicate()])


def make_attention(mesh):
    """All inputs are split by heads: what goes in and what comes back as a gradient have the same placements, the default."""
    heads = [Shard(1)]
    return local_map(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        out_placements=heads,
        in_placements=(heads, heads, heads),
        device_mesh=mesh,
    )
