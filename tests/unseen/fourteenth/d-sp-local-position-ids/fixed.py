# Reduces LLaMA-Factory's sequence-parallel collator path: positions are built from the length of the local slice,
# so every rank of the sequence group rotates its queries and keys as if it held the start of the sequence.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def all_to_all_heads(x, group, scatter_dim, gather_dim):
    import torch.distributed.nn.functional as dist_fn

    chunks = [c.contiguous() for c in x.chunk(dist.get_world_size(group), dim=scatter_dim)]
    outputs = [torch.empty_like(c) for c in chunks]
    return torch.cat(dist_fn.all_to_all(outputs, chunks, group=group), dim=gather_dim)


def rotate(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)


class UlyssesAttention(nn.Module):
    def __init__(self, hidden, heads, sp_group):
        super().__init__()
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.heads, self.sp_group = heads, sp_group
        half = hidden // heads // 2
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(half) / half), persistent=False)

    def forward(self, x):  # x: [batch, sequence / sp, hidden]
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, -1).unbind(2)
        positions = torch.arange(s, device=x.device) + s * dist.get_rank(self.sp_group)
        angles = torch.outer(positions.float(), self.inv_freq)[None, :, None]
        q, k = rotate(q, angles.cos(), angles.sin()), rotate(k, angles.cos(), angles.sin())
        q, k, v = (all_to_all_heads(t, self.sp_group, 2, 1).transpose(1, 2) for t in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        o = all_to_all_heads(o, self.sp_group, 1, 2)
        return self.out(o.reshape(b, s, -1))
