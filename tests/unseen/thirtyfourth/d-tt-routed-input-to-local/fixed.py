# pytorch/torchtitan, pull request 1878 - https://github.com/pytorch/torchtitan/pull/1878 (read)
# Under TP every rank multiplies the same routed tokens with its part of the expert hidden dimension, so the
# gradient of the tokens is Partial. A bare to_local() declares it Replicate and no all-reduce follows.
"""Grouped experts with tensor-parallel DTensor weights."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts, tp_mesh):
        super().__init__()
        w1 = torch.empty(num_experts, hidden_dim, dim)
        w2 = torch.empty(num_experts, dim, hidden_dim)
        nn.init.trunc_normal_(w1, std=0.02)
        nn.init.trunc_normal_(w2, std=0.02)
        self.w1 = nn.Parameter(distribute_tensor(w1, tp_mesh, [Shard(1)]))
        self.w2 = nn.Parameter(distribute_tensor(w2, tp_mesh, [Shard(2)]))

    def forward(self, x: DTensor, num_tokens_per_expert: list):
        # x: routed tokens, sorted by expert, Replicate on the tp mesh
        mesh = x.device_mesh
        x = x.to_local(grad_placements=(Partial(),))
        w1, w2 = self.w1.to_local(), self.w2.to_local()
        outs = []
        for expert, tokens in enumerate(torch.split(x, num_tokens_per_expert, dim=0)):
            h = F.silu(tokens @ w1[expert].transpose(-2, -1))
            outs.append(h @ w2[expert].transpose(-2, -1))
        out = torch.cat(outs, dim=0)
        return DTensor.from_local(out, mesh, (Partial(),), run_check=False)
