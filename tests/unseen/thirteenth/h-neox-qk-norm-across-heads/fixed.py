"""Self attention with one RMS norm over the query (key) features of all heads.

Source: EleutherAI/gpt-neox PR #1424 (across_heads under tensor parallelism).
"""
import torch
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch import nn
from megatron import mpu


class AcrossHeadsRMSNorm(nn.Module):
    """Normalises the whole projection; each tensor-parallel rank holds the slice of its heads."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        world_size = mpu.get_model_parallel_world_size()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.ones(dim // world_size))
        self.weight.model_parallel = True

    def forward(self, x):
        xf = x.float()
        sum_sq = xf.square().sum(dim=-1, keepdim=True)
        sum_sq = torch.distributed.nn.functional.all_reduce(sum_sq, group=mpu.get_model_parallel_group())
        var = sum_sq / self.dim
        return (xf * torch.rsqrt(var + self.eps)).to(x.dtype) * self.weight


class ParallelSelfAttention(nn.Module):
    def __init__(self, neox_args, init_method, output_layer_init_method):
        super().__init__()
        hidden = neox_args.hidden_size
        self.np = neox_args.num_attention_heads // mpu.get_model_parallel_world_size()
        self.query_key_value = mpu.ColumnParallelLinear(
            neox_args, hidden, 3 * hidden, gather_output=False, init_method=init_method
        )
        self.q_norm, self.k_norm = AcrossHeadsRMSNorm(hidden), AcrossHeadsRMSNorm(hidden)
        self.dense = mpu.RowParallelLinear(
            neox_args, hidden, hidden, input_is_parallel=True, init_method=output_layer_init_method
        )

    def forward(self, hidden_states):
        s, b, _ = hidden_states.shape
        mixed, _ = self.query_key_value(hidden_states)
        q, k, v = mixed.chunk(3, dim=-1)
        q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.reshape(s, b, self.np, -1).permute(1, 2, 0, 3) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = out.permute(2, 0, 1, 3).reshape(s, b, -1)
        return self.dense(out)
