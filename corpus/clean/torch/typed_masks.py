"""Attention with declared masks and positions: they are equal on all ranks and have no gradient, the scores differ."""

# spmd: mesh model = dp, tp
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region


# spmd: positions: {tp: I}, q: {tp: V} -> {tp: V}
def rotate(q, positions, inverse):
    angles = torch.outer(positions.float(), inverse)
    angles = torch.cat([angles, angles], dim=-1)[:, None, None, :]
    first, second = q.chunk(2, dim=-1)
    return q * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


class Attention(nn.Module):
    def __init__(self, hidden, heads_per_rank, head_dim):
        super().__init__()
        self.heads, self.head_dim = heads_per_rank, head_dim
        self.qkv = nn.Parameter(torch.empty(3 * heads_per_rank * head_dim, hidden))  # spmd: {tp: S(0)}
        self.out = nn.Parameter(torch.empty(hidden, heads_per_rank * head_dim))  # spmd: {tp: S(1)}
        self.register_buffer("inverse", 1.0 / 10000 ** (torch.arange(0, head_dim, 2).float() / head_dim))

    # spmd: x: {dp: V, tp: I}, mask: {dp: V, tp: I}, positions: {tp: I} -> {dp: V, tp: I}
    def forward(self, x, mask, positions):
        length, batch, _ = x.shape
        qkv = F.linear(copy_to_tensor_model_parallel_region(x), self.qkv)
        q, k, v = qkv.view(length, batch, 3, self.heads, self.head_dim).unbind(2)
        q, k = rotate(q, positions, self.inverse), rotate(k, positions, self.inverse)
        scores = torch.einsum("ibnd,jbnd->bnij", q, k) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(mask[:, None], float("-inf"))
        probs = torch.softmax(scores, dim=-1)
        context = torch.einsum("bnij,jbnd->ibnd", probs, v).reshape(length, batch, -1)
        return reduce_from_tensor_model_parallel_region(F.linear(context, self.out))

    # spmd: x: {dp: V, tp: I}, padding: {dp: V, tp: I} -> {dp: V, tp: I}
    def additive(self, x, padding):
        length, batch, _ = x.shape
        qkv = F.linear(copy_to_tensor_model_parallel_region(x), self.qkv)
        q, k, v = qkv.view(length, batch, 3, self.heads, self.head_dim).unbind(2)
        bias = (1.0 - padding.to(q.dtype)) * -1e4
        scores = torch.einsum("ibnd,jbnd->bnij", q, k) + bias[:, None, None, :]
        context = torch.einsum("bnij,jbnd->ibnd", torch.softmax(scores, dim=-1), v).reshape(length, batch, -1)
        return reduce_from_tensor_model_parallel_region(F.linear(context, self.out))
