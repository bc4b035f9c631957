"""Attention with head-sharded projections and a per-head norm."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from picotron.tensor_parallel.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class Attention(nn.Module):
    def __init__(self, hidden, num_heads, head_dim, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.heads = num_heads // dist.get_world_size(tp_group)
        self.head_dim = head_dim
        width = num_heads * head_dim
        self.q_proj = ColumnParallelLinear(hidden, width, bias=False)
        self.k_proj = ColumnParallelLinear(hidden, width, bias=False)
        self.v_proj = ColumnParallelLinear(hidden, width, bias=False)
        self.out_proj = RowParallelLinear(width, hidden, bias=False)
        # one weight of size head_dim for all heads, the same on every TP rank
        self.q_norm = nn.RMSNorm(head_dim)
        self.k_norm = nn.RMSNorm(head_dim)
        for norm in [self.q_norm]:  # BUG
            norm.weight.register_hook(self._sum_over_tp)

    def _sum_over_tp(self, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, op=dist.ReduceOp.SUM, group=self.tp_group)
        return grad

    def forward(self, x):
        b, s, _ = x.shape
        q = self.q_proj(x).view(b, s, self.heads, self.head_dim)
        k = self.k_proj(x).view(b, s, self.heads, self.head_dim)
        v = self.v_proj(x).view(b, s, self.heads, self.head_dim)
        q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(b, s, -1))
