"""Routed experts under tensor parallelism, computed on local tensors."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


class GroupedExperts(torch.nn.Module):
    def __init__(self, w1: DTensor, w2: DTensor):
        super().__init__()
        self.w1 = torch.nn.Parameter(w1)  # [E, hidden, dim], Shard(1) on tp
        self.w2 = torch.nn.Parameter(w2)  # [E, dim, hidden], Shard(2) on tp

    def forward(self, x: DTensor):
        # x: [E, tokens, dim], Replicate on tp
        assert all(isinstance(p, Replicate) for p in x.placements)
        x_local = x.to_local(grad_placements=(Partial(),))
        w1, w2 = self.w1.to_local(), self.w2.to_local()
        h = F.silu(torch.bmm(x_local, w1.transpose(-2, -1)))
        out = torch.bmm(h, w2.transpose(-2, -1))
        return DTensor.from_local(out, x.device_mesh, (Partial(),), run_check=False)
