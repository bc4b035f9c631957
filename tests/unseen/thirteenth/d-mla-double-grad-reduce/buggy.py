"""Multi-latent attention: replicated down projection, column-parallel up projection.

Source: inclusionAI/AReno PR #496.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class MLASelfAttention(nn.Module):
    def __init__(self, hidden, heads_local, nope, rope, v_dim, kv_rank):
        super().__init__()
        self.h, self.nope, self.rope, self.v_dim, self.kv_rank = heads_local, nope, rope, v_dim, kv_rank
        self.q_weight = nn.Parameter(torch.empty(heads_local * (nope + rope), hidden))
        self.kv_b_weight = nn.Parameter(torch.empty(heads_local * (nope + v_dim), kv_rank))
        self.o_weight = nn.Parameter(torch.empty(hidden, heads_local * v_dim))
        self.kv_a = nn.Linear(hidden, kv_rank + rope, bias=False)  # replicated over TP
        self.kv_a_norm = nn.RMSNorm(kv_rank)  # replicated over TP

    def forward(self, x):
        s, b, _ = x.shape
        q = F.linear(copy_to_tensor_model_parallel_region(x), self.q_weight)
        q = q.view(s, b, self.h, self.nope + self.rope)
        latent, k_pe = self.kv_a(x).split([self.kv_rank, self.rope], dim=-1)
        latent = copy_to_tensor_model_parallel_region(self.kv_a_norm(latent))  # BUG
        kv = F.linear(latent, self.kv_b_weight).view(s, b, self.h, self.nope + self.v_dim)
        k_nope, v = kv.split([self.nope, self.v_dim], dim=-1)
        k = torch.cat([k_nope, k_pe.unsqueeze(2).expand(s, b, self.h, self.rope)], dim=-1)
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = out.permute(2, 0, 1, 3).reshape(s, b, -1)
        return reduce_from_tensor_model_parallel_region(F.linear(out, self.o_weight))


def reduce_replicated_gradients(model, tp_group):
    for module in model.modules():
        if isinstance(module, MLASelfAttention):
            for param in (module.kv_a.weight, module.kv_a_norm.weight):
                dist.all_reduce(param.grad, group=tp_group)
