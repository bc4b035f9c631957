"""Attention on local heads behind a sequence-sharded residual stream, gathers written with DTensor."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


def gather_sequence(x: torch.Tensor, mesh: DeviceMesh, dim: int = 1) -> torch.Tensor:
    """[b, s / tp, d] -> [b, s, d]"""
    x = DTensor.from_local(x, mesh, [Shard(dim)], run_check=False)
    x = x.redistribute(placements=[Replicate()])
    return x.to_local(grad_placements=[Partial()])


def scatter_sequence_sum(x: torch.Tensor, mesh: DeviceMesh, dim: int = 1) -> torch.Tensor:
    """Sum the ranks' contributions and keep this rank's part of the sequence."""
    x = DTensor.from_local(x, mesh, [Partial()], run_check=False)
    return x.redistribute(placements=[Shard(dim)]).to_local()


class LocalHeadsAttention(nn.Module):
    def __init__(self, dim, num_heads, head_dim, mesh):
        super().__init__()
        self.local_heads, self.head_dim, self.mesh = num_heads // mesh.size(), head_dim, mesh
        inner = self.local_heads * head_dim
        self.wqkv = nn.Linear(dim, 3 * inner, bias=False)  # this rank's heads
        self.wo = nn.Linear(inner, dim, bias=False)  # this rank's input columns

    def forward(self, x):
        x = gather_sequence(x, self.mesh)
        b, s, _ = x.shape
        q, k, v = self.wqkv(x).view(b, s, 3, self.local_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = self.wo(out.transpose(1, 2).flatten(2))
        return scatter_sequence_sum(out, self.mesh)
