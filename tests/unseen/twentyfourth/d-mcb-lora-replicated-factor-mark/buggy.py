"""LoRA on tensor-parallel linear layers.

After modelscope/mcore-bridge PR #173 (src/mcore_bridge/tuners/lora.py `LoraParallelLinear`).
"""
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    get_cuda_rng_tracker,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


def _shard(rows, cols):
    weight = torch.nn.Parameter(torch.zeros(rows, cols, device="cuda"))
    setattr(weight, "tensor_model_parallel", True)
    return weight


def _replica(rows, cols):
    return torch.nn.Parameter(torch.zeros(rows, cols, device="cuda"))


class LoraColumnParallelLinear(torch.nn.Module):
    """lora_a is the same on each TP rank, lora_b is cut along the output."""

    def __init__(self, base, in_features, out_features, r, scaling, sequence_parallel):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.base, self.scaling, self.sequence_parallel = base, scaling, sequence_parallel
        self.lora_a = _replica(r, in_features)
        self.lora_b = _shard(out_features // tp, r)
        torch.nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        setattr(self.lora_a, "sequence_parallel", sequence_parallel)

    def forward(self, x):
        out, bias = self.base(x)
        mid = F.linear(x, self.lora_a)
        if self.sequence_parallel:
            mid = gather_from_sequence_parallel_region(mid)
        else:
            mid = copy_to_tensor_model_parallel_region(mid)
        return out + self.scaling * F.linear(mid, self.lora_b), bias


class LoraRowParallelLinear(torch.nn.Module):
    """lora_a is cut along the input, lora_b is the same on each TP rank."""

    def __init__(self, base, in_features, out_features, r, scaling, sequence_parallel):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.base, self.scaling, self.sequence_parallel = base, scaling, sequence_parallel
        self.lora_a = _shard(r, in_features // tp)
        self.lora_b = _replica(out_features, r)  # BUG: applied to sequence shards, unmarked
        with get_cuda_rng_tracker().fork():
            torch.nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x):
        out, bias = self.base(x)
        mid = F.linear(x, self.lora_a)
        if self.sequence_parallel:
            mid = reduce_scatter_to_sequence_parallel_region(mid)
        else:
            mid = reduce_from_tensor_model_parallel_region(mid)
        return out + self.scaling * F.linear(mid, self.lora_b), bias


def allreduce_sequence_parallel_grads(model):
    group = parallel_state.get_tensor_model_parallel_group()
    for p in model.parameters():
        if p.requires_grad and getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.grad, group=group)
