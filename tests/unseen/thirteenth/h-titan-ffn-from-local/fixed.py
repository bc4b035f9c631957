# SwiGLU feed-forward whose matmuls run on local tensors with a sequence-parallel boundary.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class LocalFeedForward(nn.Module):
    """Input and output: DTensor [b, s, d], Shard(1) on the 1-D tp mesh."""

    def __init__(self, dim, hidden_dim, tp_mesh):
        super().__init__()
        self.tp_mesh = tp_mesh

        def param(rows, cols, placement):
            full = torch.empty(rows, cols)
            nn.init.trunc_normal_(full, std=0.02)
            return nn.Parameter(distribute_tensor(full, tp_mesh, [placement]))

        self.w1 = param(hidden_dim, dim, Shard(0))
        self.w3 = param(hidden_dim, dim, Shard(0))
        self.w2 = param(dim, hidden_dim, Shard(1))

    def forward(self, x: DTensor) -> DTensor:
        x = x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
        h = F.silu(F.linear(x, self.w1.to_local())) * F.linear(x, self.w3.to_local())
        out = F.linear(h, self.w2.to_local())
        out = DTensor.from_local(out, self.tp_mesh, [Partial()], run_check=False)
        return out.redistribute(placements=[Shard(1)])
