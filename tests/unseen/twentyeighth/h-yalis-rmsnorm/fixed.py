"""Decoder pieces for tensor parallelism with activations kept split on the hidden dim."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather, all_reduce


def get_tp():
    from axonn import axonn as ax

    return ax.comm_handle.inner_intra_layer_parallel_group


class TPRMSNorm(nn.Module):
    """RMSNorm of a vector whose entries are divided over the tensor-parallel ranks."""

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.group = get_tp()
        self.hidden_size = hidden_size
        self.local_size = hidden_size // dist.get_world_size(self.group)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(self.local_size))

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        square_sum = x.pow(2).sum(dim=-1, keepdim=True)
        variance = all_reduce(square_sum, group=self.group) / self.hidden_size
        x = x * torch.rsqrt(variance + self.eps)
        return (x * self.weight).to(dtype)


class GatherColumnLinear(nn.Module):
    """[.., hidden / tp] -> [.., out / tp]: gathers the input, splits the output."""

    def __init__(self, hidden_size, out_features):
        super().__init__()
        self.group = get_tp()
        size = dist.get_world_size(self.group)
        self.weight = nn.Parameter(torch.empty(out_features // size, hidden_size))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        full = torch.cat(all_gather(x.contiguous(), group=self.group), dim=-1)
        return F.linear(full, self.weight)


class SplitMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = GatherColumnLinear(config.n_embd, config.intermediate_size)
        self.up = GatherColumnLinear(config.n_embd, config.intermediate_size)
        self.down = GatherColumnLinear(config.intermediate_size, config.n_embd)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class SplitAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head_dim = config.n_embd // config.n_head
        self.q = GatherColumnLinear(config.n_embd, config.n_embd)
        self.k = GatherColumnLinear(config.n_embd, config.n_embd)
        self.v = GatherColumnLinear(config.n_embd, config.n_embd)
        self.proj = GatherColumnLinear(config.n_embd, config.n_embd)

    def _heads(self, t):
        b, s, _ = t.shape
        return t.view(b, s, -1, self.head_dim).transpose(1, 2)

    def forward(self, x):
        q, k, v = self._heads(self.q(x)), self._heads(self.k(x)), self._heads(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).flatten(2))


class SplitBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm_1 = TPRMSNorm(config.n_embd, eps=config.norm_eps)
        self.attn = SplitAttention(config)
        self.norm_2 = TPRMSNorm(config.n_embd, eps=config.norm_eps)
        self.mlp = SplitMLP(config)

    def forward(self, x):
        x = x + self.attn(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))
