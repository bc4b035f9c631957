"""MLA query path and the reduction of replicated gradients.

Source: https://github.com/inclusionAI/AReno/pull/496
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)


class ColumnParallelLinear(nn.Module):
    def __init__(self, weight_shard, sequence_parallel):
        super().__init__()
        self.weight = nn.Parameter(weight_shard)
        self.sequence_parallel = sequence_parallel

    def forward(self, x):
        if self.sequence_parallel:
            x = gather_from_sequence_parallel_region(x)
        else:
            x = copy_to_tensor_model_parallel_region(x)
        return F.linear(x, self.weight)


class MLAQuery(nn.Module):
    """hidden -> replicated q_a -> norm -> column-parallel q_b."""

    def __init__(self, hidden, rank, q_b_shard, sequence_parallel):
        super().__init__()
        self.q_a_proj = nn.Linear(hidden, rank, bias=False)
        self.q_a_norm = nn.RMSNorm(rank)
        self.q_b_proj = ColumnParallelLinear(q_b_shard, sequence_parallel)

    def forward(self, hidden):
        return self.q_b_proj(self.q_a_norm(self.q_a_proj(hidden)))


class TrainingManager:
    def __init__(self, tp_group, sequence_parallel):
        self.tp_group, self.sequence_parallel = tp_group, sequence_parallel

    def reduce_replicated_grads(self, model):
        for name, p in model.named_parameters():
            if "q_a_" in name and p.grad is not None:
                dist.all_reduce(p.grad, group=self.tp_group)  # BUG
