"""Grouped-query attention with declared types: sequence-parallel input, heads split over tp, output scattered to the sequence."""

import spmd_types as spmd
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp = mesh.get_group("dp")
tp = mesh.get_group("tp")


class Attention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, enable_sp=True):
        super().__init__()
        self.enable_sp = enable_sp
        self.head_dim = dim // n_heads
        self.n_rep = n_heads // n_kv_heads
        size = tp.size()
        self.wq = nn.Parameter(torch.empty(n_heads * self.head_dim // size, dim))
        self.wk = nn.Parameter(torch.empty(n_kv_heads * self.head_dim // size, dim))
        self.wv = nn.Parameter(torch.empty(n_kv_heads * self.head_dim // size, dim))
        self.wo = nn.Parameter(torch.empty(dim, n_heads * self.head_dim // size))
        for weight in (self.wq, self.wk, self.wv):
            spmd.assert_type(weight, {dp: spmd.R, tp: spmd.S(0)})
        spmd.assert_type(self.wo, {dp: spmd.R, tp: spmd.S(1)})

    def forward(self, x_BLD, mask=None):
        spmd.assert_type(x_BLD, {dp: spmd.V, tp: spmd.S(1) if self.enable_sp else spmd.I})
        if self.enable_sp:
            x_BLD = spmd.all_gather(x_BLD, tp, src=spmd.S(1), dst=spmd.R)
        else:
            x_BLD = spmd.convert(x_BLD, tp, src=spmd.I, dst=spmd.R)
        B, L, _ = x_BLD.shape
        q = F.linear(x_BLD, self.wq).view(B, L, -1, self.head_dim)
        k = F.linear(x_BLD, self.wk).view(B, L, -1, self.head_dim)
        v = F.linear(x_BLD, self.wv).view(B, L, -1, self.head_dim)
        k = torch.repeat_interleave(k, dim=2, repeats=self.n_rep)
        v = torch.repeat_interleave(v, dim=2, repeats=self.n_rep)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        out = out.transpose(1, 2).contiguous().view(B, L, -1)
        partial = F.linear(out, self.wo)
        if self.enable_sp:
            return spmd.reduce_scatter(partial, tp, src=spmd.P, dst=spmd.S(1))
        return spmd.all_reduce(partial, tp, src=spmd.P, dst=spmd.I)


class Norm(nn.Module):
    """In the sequence-parallel case every rank sees a part of the sequence: the weight is replicated and its gradient partial."""

    def __init__(self, dim, enable_sp=True, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))
        spmd.assert_type(self.weight, {dp: spmd.R, tp: spmd.R if enable_sp else spmd.I})

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Layer(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, enable_sp=True):
        super().__init__()
        self.norm = Norm(dim, enable_sp)
        self.attention = Attention(dim, n_heads, n_kv_heads, enable_sp)

    def forward(self, x_BLD):
        return x_BLD + self.attention(self.norm(x_BLD))


def run(layers, x, enable_sp):
    x = spmd.assert_type(x, {dp: spmd.V, tp: spmd.I})
    if enable_sp:
        x = spmd.convert(x, tp, src=spmd.I, dst=spmd.S(1))
    for layer in layers:
        x = layer(x)
    if enable_sp:
        x = spmd.all_gather(x, tp, src=spmd.S(1), dst=spmd.I)
    spmd.assert_type(x, {dp: spmd.V, tp: spmd.I})
    return x
