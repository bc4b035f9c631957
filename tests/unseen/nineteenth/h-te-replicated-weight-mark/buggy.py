"""Attributes of a linear weight and the gradient norm that reads them.

ROCm/TransformerEngine, pull request #715 (transformer_engine/pytorch/module/linear.py).
"""
import torch
from torch import nn


def set_tensor_model_parallel_attributes(tensor, is_parallel, dim, stride):
    setattr(tensor, "tensor_model_parallel", is_parallel)
    setattr(tensor, "partition_dim", dim)
    setattr(tensor, "partition_stride", stride)


class Linear(nn.Module):
    """parallel_mode is "column", "row" or None; None keeps the whole weight on every rank."""

    def __init__(self, in_features, out_features, tp_size=1, parallel_mode=None):
        super().__init__()
        self.parallel_mode = parallel_mode
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        set_tensor_model_parallel_attributes(
            tensor=self.weight,
            is_parallel=True,  # BUG: also for parallel_mode=None, where the weight is replicated
            dim=1 if parallel_mode == "row" else 0,
            stride=1,
        )


class MLADownProjections(nn.Module):
    def __init__(self, hidden, q_rank, kv_rank, rope_dim, tp_size):
        super().__init__()
        self.linear_q_down_proj = Linear(hidden, q_rank, tp_size, parallel_mode=None)
        self.linear_kv_down_proj = Linear(hidden, kv_rank + rope_dim, tp_size, parallel_mode=None)


def param_is_not_tensor_parallel_duplicate(param, tp_rank):
    return getattr(param, "tensor_model_parallel", False) or tp_rank == 0


def get_grad_norm(params, tp_rank, grad_stats_parallel_group):
    total = torch.zeros(1, dtype=torch.float, device="cuda")
    for p in params:
        if param_is_not_tensor_parallel_duplicate(p, tp_rank):
            total += p.main_grad.float().norm() ** 2
    torch.distributed.all_reduce(total, group=grad_stats_parallel_group)  # tp x pp ranks
    return total.item() ** 0.5
