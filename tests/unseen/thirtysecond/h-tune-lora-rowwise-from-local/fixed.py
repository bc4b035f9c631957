"""LoRA branch of a row-wise parallel linear.
pytorch/torchtune, LoRA with tensor parallelism, from memory.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class RowwiseLoRALinear(nn.Module):
    """x is a DTensor sharded on its last dimension over tp; the output is replicated."""

    def __init__(self, weight, rank, alpha, tp_mesh):
        super().__init__()
        out_dim, in_dim = weight.shape
        self.tp_mesh, self.scaling = tp_mesh, alpha / rank
        self.weight = nn.Parameter(distribute_tensor(weight, tp_mesh, [Shard(1)]), requires_grad=False)
        self.lora_a = nn.Parameter(distribute_tensor(torch.randn(rank, in_dim) * 0.01, tp_mesh, [Shard(1)]))
        self.lora_b = nn.Parameter(distribute_tensor(torch.zeros(out_dim, rank), tp_mesh, [Replicate()]))

    def forward(self, x: DTensor) -> DTensor:
        x_local = x.to_local()
        out = DTensor.from_local(
            F.linear(x_local, self.weight.to_local()), self.tp_mesh, [Partial()], run_check=False
        )
        mid_local = F.linear(x_local, self.lora_a.to_local())
        mid = DTensor.from_local(mid_local, self.tp_mesh, [Partial()], run_check=False)
        mid = mid.redistribute(placements=[Replicate()])
        return out.redistribute(placements=[Replicate()]) + self.scaling * F.linear(mid, self.lora_b)
