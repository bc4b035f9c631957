"""Tensor-parallel plan for Qwen3, whose attention normalises queries and keys per head."""
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Qwen3Attention(nn.Module):
    def __init__(self, dim, n_heads, head_dim):
        super().__init__()
        self.head_dim = head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, n_heads * head_dim, bias=False) for _ in range(3))
        self.q_norm, self.k_norm = nn.RMSNorm(head_dim), nn.RMSNorm(head_dim)
        self.o_proj = nn.Linear(n_heads * head_dim, dim, bias=False)

    def forward(self, x):
        shape = (*x.shape[:-1], -1, self.head_dim)
        q = self.q_norm(self.q_proj(x).view(shape)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(shape)).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


def apply_tp(attn: Qwen3Attention, tp_mesh):
    plan = {
        "q_proj": ColwiseParallel(use_local_output=False),
        "k_proj": ColwiseParallel(use_local_output=False),
        "v_proj": ColwiseParallel(use_local_output=False),
        "q_norm": SequenceParallel(sequence_dim=2),
        "k_norm": SequenceParallel(sequence_dim=2),
        "o_proj": RowwiseParallel(),
    }
    parallelize_module(attn, tp_mesh, plan)
