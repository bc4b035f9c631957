"""Attention with one fused projection, its tensor-parallel plan, and the conversion of Hugging Face weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Attention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, head_dim):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, head_dim
        self.qkv_proj = nn.Linear(dim, (n_heads + 2 * n_kv_heads) * head_dim, bias=False)
        self.o_proj = nn.Linear(n_heads * head_dim, dim, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        qkv = self.qkv_proj(x)
        share = qkv.size(-1) // (self.n_heads + 2 * self.n_kv_heads)
        sizes = [self.n_heads * share, self.n_kv_heads * share, self.n_kv_heads * share]
        q, k, v = qkv.split(sizes, dim=-1)  # BUG
        q, k, v = (t.reshape(b, s, -1, self.head_dim).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(b, s, -1))


def fuse_qkv(q, k, v, n_heads, n_kv_heads, head_dim):
    """Weights of q_proj, k_proj, v_proj -> weight of qkv_proj."""
    return torch.cat([q, k, v], dim=0)  # BUG


def apply_tp(model, tp_mesh):
    for layer in model.layers:
        plan = {
            "attention.qkv_proj": ColwiseParallel(),
            "attention.o_proj": RowwiseParallel(),
        }
        parallelize_module(layer, tp_mesh, plan)
