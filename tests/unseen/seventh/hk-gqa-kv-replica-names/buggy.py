"""Attention with one key/value head shared by all tensor-parallel ranks."""
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class SharedKVAttention(nn.Module):
    def __init__(self, hidden, head_dim, local_heads):
        super().__init__()
        self.heads, self.head_dim = local_heads, head_dim
        self.q_proj = nn.Linear(hidden, local_heads * head_dim, bias=False)  # heads of this rank
        self.k_proj = nn.Linear(hidden, head_dim, bias=False)  # same weight on every TP rank
        self.v_proj = nn.Linear(hidden, head_dim, bias=False)  # same weight on every TP rank
        self.o_proj = nn.Linear(local_heads * head_dim, hidden, bias=False)  # columns of this rank

    def forward(self, x):
        b, s, _ = x.shape
        x = copy_to_tensor_model_parallel_region(x)
        q = self.q_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).unsqueeze(1).expand(-1, self.heads, -1, -1)
        v = self.v_proj(x).unsqueeze(1).expand(-1, self.heads, -1, -1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = self.o_proj(out.transpose(1, 2).reshape(b, s, -1))
        return reduce_from_tensor_model_parallel_region(out)


def allreduce_shared_kv_grads(model, tp_group):
    if dist.get_world_size(tp_group) == 1:
        return
    for name, p in model.named_parameters():
        if "k_proj" in name:  # BUG
            dist.all_reduce(p.grad, group=tp_group)
