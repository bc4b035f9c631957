"""DiT attention: timestep modulation of head-sharded queries and keys."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
)


class ModulatedAttention(nn.Module):
    def __init__(self, qkv: ColumnParallelLinear, proj: RowParallelLinear, cond_dim, local_heads, head_dim):
        super().__init__()
        self.qkv, self.proj = qkv, proj
        self.heads, self.head_dim = local_heads, head_dim
        # same weight and same input on every tensor-parallel rank
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(cond_dim, 2 * head_dim))

    def forward(self, x, t_emb):
        # x: [s, b, h], t_emb: [b, cond_dim]
        s, b, _ = x.shape
        scale_q, scale_k = self.modulation(t_emb).chunk(2, dim=-1)
        qkv, _ = self.qkv(x)
        q, k, v = qkv.view(s, b, self.heads, 3 * self.head_dim).chunk(3, dim=-1)
        q = q * (1 + scale_q[None, :, None, :])  # BUG
        k = k * (1 + scale_k[None, :, None, :])
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v)
        out = out.permute(2, 0, 1, 3).reshape(s, b, -1)
        return self.proj(out)[0]
