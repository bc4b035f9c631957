"""RMSNorm on sequence shards through local_map.
pytorch/torchtitan, from memory.
"""
import torch
import torch.nn as nn
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map


def rms_norm(x, weight, eps):
    variance = x.float().pow(2).mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(variance + eps)).type_as(x) * weight


class LocalMapRMSNorm(nn.Module):
    """x: DTensor [batch, seq, dim], Shard(1) on the tp mesh."""

    def __init__(self, dim, tp_mesh, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(distribute_tensor(torch.ones(dim), tp_mesh, [Replicate()]))
        self._norm = local_map(
            rms_norm,
            out_placements=[Shard(1)],
            in_placements=([Shard(1)], [Replicate()], None),
            in_grad_placements=([Shard(1)], [Partial()], None),
            device_mesh=tp_mesh,
        )

    def forward(self, x):
        return self._norm(x, self.weight, self.eps)


def replace_norms(model, tp_mesh):
    for block in model.layers.values():
        dim = block.attention_norm.weight.numel()
        block.attention_norm = LocalMapRMSNorm(dim, tp_mesh)
        block.ffn_norm = LocalMapRMSNorm(dim, tp_mesh)
