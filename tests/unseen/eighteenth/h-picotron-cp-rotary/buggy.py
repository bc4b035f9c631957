"""Causal attention with context parallelism: keys and values are gathered over the group.

Source: rotary embeddings under context parallelism as in picotron and nanotron (from memory).
The sequence is cut into contiguous parts. The causal mask is made from global positions, but the
rotary angles of each part start from zero, so distances between tokens of different parts are
wrong.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_gather_tensor_autograd


def rotary(positions, head_dim, theta=10000.0):
    inv = theta ** (-torch.arange(0, head_dim, 2, device=positions.device) / head_dim)
    angles = positions.float().unsqueeze(-1) * inv
    return torch.cat([angles.cos()] * 2, dim=-1), torch.cat([angles.sin()] * 2, dim=-1)


def apply_rotary(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-x2, x1], dim=-1) * sin


class ContextParallelAttention(torch.nn.Module):
    def __init__(self, hidden, num_heads, cp_group):
        super().__init__()
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = torch.nn.Linear(hidden, hidden, bias=False)
        self.num_heads, self.cp_group = num_heads, cp_group

    def forward(self, x):
        # x: [b, s / cp, hidden], part number cp_rank of the sequence
        local = x.size(1)
        offset = dist.get_rank(self.cp_group) * local
        total = dist.get_world_size(self.cp_group) * local
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)

        positions = torch.arange(local, device=x.device)  # BUG
        cos, sin = rotary(positions, q.size(-1))
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)

        k = all_gather_tensor_autograd(k.contiguous(), 2, self.cp_group)
        v = all_gather_tensor_autograd(v.contiguous(), 2, self.cp_group)
        rows = torch.arange(local, device=x.device).unsqueeze(-1) + offset
        mask = rows >= torch.arange(total, device=x.device)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).flatten(2))
