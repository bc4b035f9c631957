"""Linear with optional tensor parallelism, and the clipping that reads its marks."""
# Source: ROCm/TransformerEngine pull request 715 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state


def set_tensor_model_parallel_attributes(tensor, is_parallel, dim, stride):
    tensor.tensor_model_parallel = is_parallel
    tensor.partition_dim = dim
    tensor.partition_stride = stride


class Linear(nn.Module):
    """parallel_mode: 'column', 'row' or None, which keeps the whole weight on every rank."""

    def __init__(self, in_features, out_features, tp_size, parallel_mode=None):
        super().__init__()
        self.parallel_mode = parallel_mode
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        dim = 1 if parallel_mode == "row" else 0
        set_tensor_model_parallel_attributes(self.weight, parallel_mode is not None, dim, 1)

    def forward(self, x):
        return F.linear(x, self.weight)


class LatentDownProjection(nn.Module):
    """Shared by all heads, so it is not split."""

    def __init__(self, config):
        super().__init__()
        tp_size = config.tensor_model_parallel_size
        self.linear_q_down_proj = Linear(config.hidden_size, config.q_lora_rank, tp_size)
        self.linear_kv_down_proj = Linear(config.hidden_size, config.kv_lora_rank, tp_size)

    def forward(self, hidden_states):
        return self.linear_q_down_proj(hidden_states), self.linear_kv_down_proj(hidden_states)


def get_main_grads_for_grad_norm(params):
    rank = parallel_state.get_tensor_model_parallel_rank()
    return [p.main_grad for p in params if getattr(p, "tensor_model_parallel", False) or rank == 0]


def clip_grad_by_total_norm(params, max_norm):
    total = torch.stack([g.float().pow(2).sum() for g in get_main_grads_for_grad_norm(params)]).sum()
    dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
    coef = torch.clamp(max_norm / (total.sqrt() + 1e-6), max=1.0)
    for p in params:
        p.main_grad.mul_(coef)
    return total.sqrt()
