"""Self-attention with the heads split over tp: mask, rotary table and softmax stay inside a rank."""

# spmd: mesh dense = dp, tp
import math

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class ParallelAttention(torch.nn.Module):
    def __init__(self, hidden, heads_per_rank, head_dim):
        super().__init__()
        self.heads, self.head_dim = heads_per_rank, head_dim
        inner = heads_per_rank * head_dim
        self.qkv = torch.nn.Parameter(torch.empty(3 * inner, hidden))  # spmd: {tp: S(0)}
        self.out = torch.nn.Parameter(torch.empty(hidden, inner))  # spmd: {tp: S(1)}

    # spmd: x: {tp: I}, mask: {tp: I}, cos: {tp: R}, sin: {tp: R} -> {tp: I}
    def forward(self, x, mask, cos, sin):
        batch, length, _ = x.shape
        x = copy_to_tensor_model_parallel_region(x)
        mixed = F.linear(x, self.qkv).view(batch, length, self.heads, 3 * self.head_dim)
        q, k, v = torch.split(mixed, self.head_dim, dim=-1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(mask.bool(), float("-inf"))
        context = torch.matmul(F.softmax(scores, dim=-1), v)
        context = context.transpose(1, 2).reshape(batch, length, -1)
        return reduce_from_tensor_model_parallel_region(F.linear(context, self.out))
