# InternLM / InternEvo 9445faf (#271)
"""Decoder layer with tensor-parallel attention and MLP, and the norm of its gradients."""
import torch
import torch.distributed as dist
from flash_attn.ops.fused_dense import ColumnParallelLinear, RowParallelLinear
from torch import nn

from internlm.core.context import IS_TENSOR_PARALLEL, ParallelMode
from internlm.core.context import global_context as gpc


class ParallelMLP(nn.Module):
    def __init__(self, dim, hidden, group):
        super().__init__()
        self.fc1 = ColumnParallelLinear(dim, hidden, group, bias=False, sequence_parallel=False)
        self.fc2 = RowParallelLinear(hidden, dim, group, bias=False, sequence_parallel=False)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class PackedFlashBaseLayer1D(nn.Module):
    def __init__(self, dim, hidden, mixer, group):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mixer = mixer  # bias-free column/row parallel projections
        self.mlp = ParallelMLP(dim, hidden, group)
        for _, param in [*self.mixer.named_parameters(), *self.mlp.named_parameters()]:
            if gpc.get_world_size(ParallelMode.TENSOR) > 1:
                setattr(param, IS_TENSOR_PARALLEL, True)

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def compute_norm(parameters):
    """Shards count on every tensor rank, replicated parameters on tensor rank 0 only."""
    total = torch.zeros((), device="cuda")
    for p in parameters:
        if getattr(p, IS_TENSOR_PARALLEL, False) or gpc.get_local_rank(ParallelMode.TENSOR) == 0:
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=gpc.get_group(ParallelMode.TENSOR))
    return total.sqrt()
