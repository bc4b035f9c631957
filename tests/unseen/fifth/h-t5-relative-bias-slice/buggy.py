"""Relative position bias shared by all heads' ranks, sliced to the local heads."""
import torch
import torch.nn as nn
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
)


class RelativeSelfAttention(nn.Module):
    def __init__(self, qkv: ColumnParallelLinear, proj: RowParallelLinear, buckets, heads, head_dim):
        super().__init__()
        self.qkv, self.proj = qkv, proj
        self.relative_bias = nn.Embedding(buckets, heads)  # replicated over TP
        self.local_heads = heads // parallel_state.get_tensor_model_parallel_world_size()
        self.head_dim = head_dim

    def forward(self, x, bucket):
        qkv, _ = self.qkv(x)  # heads sharded over TP
        q, k, v = qkv.view(*x.shape[:2], self.local_heads, 3 * self.head_dim).chunk(3, dim=-1)
        scores = torch.einsum("sbnd,tbnd->bnst", q, k)
        bias = self.relative_bias(bucket)  # [s, t, heads]
        first = parallel_state.get_tensor_model_parallel_rank() * self.local_heads
        bias = bias[..., first:first + self.local_heads]
        scores = scores + bias.permute(2, 0, 1).unsqueeze(0)  # BUG: each rank's table gradient covers its own heads
        out = torch.einsum("bnst,tbnd->sbnd", scores.softmax(-1), v)
        return self.proj(out.flatten(-2))[0]
