"""Linear layer with column, row or duplicated weights, and the norm that reads its attributes.

After ROCm/TransformerEngine PR #715 (transformer_engine/pytorch/module/linear.py); the reader of
the attribute is megatron/core/optimizer/optimizer.py.
"""
from contextlib import nullcontext

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


def set_tensor_model_parallel_attributes(tensor, is_parallel, dim, stride):
    setattr(tensor, "tensor_model_parallel", is_parallel)
    setattr(tensor, "partition_dim", dim)
    setattr(tensor, "partition_stride", stride)


class Linear(torch.nn.Module):
    """``parallel_mode`` is "column", "row" or None; None means the same weight on each TP rank."""

    def __init__(self, in_features, out_features, tp_size, parallel_mode=None, sequence_parallel=False):
        super().__init__()
        self.parallel_mode, self.sequence_parallel = parallel_mode, sequence_parallel
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, device="cuda"))
        with get_cuda_rng_tracker().fork() if parallel_mode else nullcontext():
            torch.nn.init.normal_(self.weight, std=0.02)
        set_tensor_model_parallel_attributes(
            self.weight,
            is_parallel=parallel_mode is not None,
            dim=1 if parallel_mode == "row" else 0,
            stride=1,
        )
        if parallel_mode is None:
            setattr(self.weight, "sequence_parallel", sequence_parallel)

    def forward(self, x):
        if self.parallel_mode == "column":
            if self.sequence_parallel:
                x = gather_from_sequence_parallel_region(x)
            else:
                x = copy_to_tensor_model_parallel_region(x)
        out = F.linear(x, self.weight)
        if self.parallel_mode == "row":
            if self.sequence_parallel:
                return reduce_scatter_to_sequence_parallel_region(out)
            return reduce_from_tensor_model_parallel_region(out)
        return out


class QueryProjection(torch.nn.Module):
    """Low-rank query of latent attention: duplicated down, column-parallel up."""

    def __init__(self, hidden_size, q_lora_rank, q_size, tp_size, sequence_parallel):
        super().__init__()
        self.down = Linear(hidden_size, q_lora_rank, tp_size, None, sequence_parallel)
        self.up = Linear(q_lora_rank, q_size, tp_size, "column", sequence_parallel)

    def forward(self, hidden_states):
        return self.up(self.down(hidden_states))


def allreduce_sequence_parallel_grads(params):
    for p in params:
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=parallel_state.get_tensor_model_parallel_group())


def get_grad_norm(params):
    tp_rank = parallel_state.get_tensor_model_parallel_rank()
    total = torch.zeros((), device="cuda")
    for p in params:
        if p.grad is not None and (getattr(p, "tensor_model_parallel", False) or tp_rank == 0):
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
    return total.sqrt()
