"""LoRA adapter of an expert linear under expert tensor parallelism."""
# NVIDIA-NeMo/Megatron-Bridge issue 5634: the adapter's output was gathered by a plain collective, and so detached from autograd.
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_tensor_model_parallel_region,
)


class ParallelLinearAdapter(nn.Module):
    """linear_in is split by its rank, linear_out by its output."""

    def __init__(self, in_features, out_features, dim, alpha):
        super().__init__()
        self.tp_group = parallel_state.get_tensor_model_parallel_group()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.linear_in = nn.Parameter(torch.empty(dim // tp, in_features))
        self.linear_in.tensor_model_parallel = True
        self.linear_out = nn.Parameter(torch.zeros(out_features // tp, dim))
        self.linear_out.tensor_model_parallel = True
        self.scale = alpha / dim

    def _gather_last_dim(self, x):
        return gather_from_tensor_model_parallel_region(x)

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        x = self._gather_last_dim(F.linear(x, self.linear_in))
        x = copy_to_tensor_model_parallel_region(x)
        x = self._gather_last_dim(F.linear(x, self.linear_out))
        return x * self.scale


class LoRALinear(nn.Module):
    def __init__(self, weight_shard, adapter: ParallelLinearAdapter):
        super().__init__()
        self.weight = nn.Parameter(weight_shard, requires_grad=False)
        self.weight.tensor_model_parallel = True
        self.adapter = adapter

    def forward(self, x):
        # x: the same on all ranks
        base = F.linear(copy_to_tensor_model_parallel_region(x), self.weight)
        return gather_from_tensor_model_parallel_region(base) + self.adapter(x)
