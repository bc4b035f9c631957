"""Tensor-parallel experts computing on local tensors."""
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


class MoE(torch.nn.Module):
    def __init__(self, w1: DTensor, w2: DTensor):
        super().__init__()
        self.w1 = torch.nn.Parameter(w1)  # [dim, hidden], Shard(1) on tp
        self.w2 = torch.nn.Parameter(w2)  # [hidden, dim], Shard(0) on tp

    def forward(self, x: DTensor):
        # x arrives sequence sharded
        mesh = x.device_mesh
        x = x.redistribute(placements=[Replicate()])
        x = x.to_local(grad_placements=[Partial()])
        h = torch.nn.functional.silu(x @ self.w1.to_local())
        out = h @ self.w2.to_local()
        out = DTensor.from_local(out, mesh, [Partial()], run_check=False)
        return out.redistribute(placements=[Shard(1)])
