"""Attention with a learnable sink per head, and the gradient norm.

After NVIDIA/Megatron-LM issue #7452, finding 8 (megatron/core/transformer/dot_product_attention.py
and megatron/core/optimizer/clip_grads.py).
"""
import math

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class SinkAttention(torch.nn.Module):
    def __init__(self, config, linear_qkv: ColumnParallelLinear, linear_proj: RowParallelLinear):
        super().__init__()
        tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.heads_per_partition = config.num_attention_heads // tp_size
        self.head_dim = config.kv_channels
        self.linear_qkv, self.linear_proj = linear_qkv, linear_proj
        # one logit for each head of this partition
        self.softmax_offset = torch.nn.Parameter(torch.zeros(self.heads_per_partition))  # BUG: TP shard, unmarked

    def forward(self, hidden_states):
        qkv, _ = self.linear_qkv(hidden_states)  # [s, b, heads_per_partition * 3 * d]
        s, b, _ = qkv.shape
        qkv = qkv.view(s, b, self.heads_per_partition, 3 * self.head_dim)
        q, k, v = qkv.split(self.head_dim, dim=-1)
        scores = torch.einsum("sbnd,tbnd->bnst", q, k) / math.sqrt(self.head_dim)
        causal = torch.ones(s, s, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(causal, float("-inf"))
        sink = self.softmax_offset.view(1, -1, 1, 1).expand(b, -1, s, 1)
        probs = torch.softmax(torch.cat([scores, sink.to(scores.dtype)], dim=-1), dim=-1)[..., :-1]
        context = torch.einsum("bnst,tbnd->sbnd", probs, v)
        return self.linear_proj(context.reshape(s, b, -1))


def param_is_not_tensor_parallel_duplicate(param):
    return getattr(param, "tensor_model_parallel", False) or (
        parallel_state.get_tensor_model_parallel_rank() == 0
    )


def get_grad_norm(params):
    """L2 norm of the whole model; parameters are sharded over the model-parallel group."""
    total = torch.zeros((), dtype=torch.float32, device="cuda")
    for p in params:
        if p.grad is not None and param_is_not_tensor_parallel_duplicate(p):
            total += p.grad.float().pow(2).sum()
    dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
    return total.sqrt()


def clip_grad_norm(params, max_norm):
    params = list(params)
    norm = get_grad_norm(params)
    coeff = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in params:
        if p.grad is not None:
            p.grad.mul_(coeff)
    return norm
