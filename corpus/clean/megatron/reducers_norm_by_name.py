"""Norms without marks in a sequence-parallel block: a finaliser sums them by the end of their names, and heads' norms in any case."""

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class RMSNorm(torch.nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(torch.nn.Module):
    def __init__(self, config, qkv: ColumnParallelLinear, proj: RowParallelLinear):
        super().__init__()
        self.head_dim = config.kv_channels
        self.linear_qkv, self.linear_proj = qkv, proj
        self.q_norm, self.k_norm = RMSNorm(self.head_dim), RMSNorm(self.head_dim)

    def forward(self, x):
        mixed, _ = self.linear_qkv(x)
        q, k, v = mixed.view(*mixed.shape[:-1], -1, 3 * self.head_dim).chunk(3, dim=-1)
        q, k = self.q_norm(q), self.k_norm(k)
        out = torch.nn.functional.scaled_dot_product_attention(*(t.permute(1, 2, 0, 3) for t in (q, k, v)), is_causal=True)
        return self.linear_proj(out.permute(2, 0, 1, 3).flatten(2))[0]


class Block(torch.nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.attn, self.mlp = attention, mlp
        self.attn_norm, self.mlp_norm = RMSNorm(config.hidden_size), RMSNorm(config.hidden_size)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def reduce_norm_grads(model, sequence_parallel):
    """Heads are split over ranks with or without sequence parallelism; the two norms of a block see a part of the sequence only with it."""
    endings = ("q_norm.weight", "k_norm.weight")
    if sequence_parallel:
        endings += ("attn_norm.weight", "mlp_norm.weight")
    group = parallel_state.get_tensor_model_parallel_group()
    with torch.distributed._coalescing_manager(group=group, async_ops=True) as coalesced:
        for name, param in model.named_parameters():
            if name.endswith(endings):
                torch.distributed.all_reduce(param.main_grad, group=group)
    coalesced.wait()
