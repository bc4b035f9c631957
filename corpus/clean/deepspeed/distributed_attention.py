"""Ulysses attention: all-to-all before and after a local attention, uneven heads excluded, used inside a transformer layer."""

from typing import Any, Tuple

import deepspeed.comm as dist
import torch
import torch.nn.functional as F
from deepspeed.utils import groups
from torch import Tensor
from torch.nn import Module


def single_all_to_all(input, scatter_idx, gather_idx, group):
    seq_world_size = dist.get_world_size(group)
    if scatter_idx == 2:
        # batch, sequence / ranks, heads, dim -> ranks, batch, sequence / ranks, heads / ranks, dim
        batch, local_seq, heads, dim = input.shape
        assert heads % seq_world_size == 0, "heads are divided among the ranks"
        input_t = input.reshape(batch, local_seq, seq_world_size, heads // seq_world_size, dim).permute(2, 0, 1, 3, 4).contiguous()
    else:
        batch, seq, local_heads, dim = input.shape
        input_t = input.reshape(batch, seq_world_size, seq // seq_world_size, local_heads, dim).transpose(0, 1).contiguous()
    output = torch.empty_like(input_t)
    dist.all_to_all_single(output, input_t, group=group)
    if scatter_idx == 2:
        output = output.permute(1, 0, 2, 3, 4).contiguous()
        return output.reshape(batch, seq_world_size * local_seq, heads // seq_world_size, dim)
    output = output.permute(1, 2, 0, 3, 4).contiguous()
    return output.reshape(batch, seq // seq_world_size, seq_world_size * local_heads, dim)


class _SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup, input: Tensor, scatter_idx: int, gather_idx: int) -> Tensor:
        ctx.group = group
        ctx.scatter_idx = scatter_idx
        ctx.gather_idx = gather_idx
        return single_all_to_all(input, scatter_idx, gather_idx, group)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> Tuple[None, Tensor, None, None]:
        return (None, _SeqAllToAll.apply(ctx.group, *grad_output, ctx.gather_idx, ctx.scatter_idx), None, None)


class DistributedAttention(Module):
    def __init__(self, local_attention: Module, sequence_process_group: dist.ProcessGroup, scatter_idx: int = 2, gather_idx: int = 1):
        super().__init__()
        self.local_attn = local_attention
        self.spg = sequence_process_group
        self.scatter_idx = scatter_idx
        self.gather_idx = gather_idx

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        query_layer = _SeqAllToAll.apply(self.spg, query, self.scatter_idx, self.gather_idx)
        key_layer = _SeqAllToAll.apply(self.spg, key, self.scatter_idx, self.gather_idx)
        value_layer = _SeqAllToAll.apply(self.spg, value, self.scatter_idx, self.gather_idx)
        context_layer = self.local_attn(query_layer, key_layer, value_layer, *args, **kwargs)
        return _SeqAllToAll.apply(self.spg, context_layer, self.gather_idx, self.scatter_idx)


class LocalAttention(Module):
    def forward(self, query, key, value):
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


class Layer(Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm = torch.nn.LayerNorm(hidden)
        self.qkv = torch.nn.Linear(hidden, 3 * hidden)
        self.dense = torch.nn.Linear(hidden, hidden)
        self.attention = DistributedAttention(LocalAttention(), groups._get_sequence_parallel_group())

    def forward(self, x):
        batch, seq, hidden = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, seq, self.heads, 3 * hidden // self.heads).chunk(3, dim=-1)
        context = self.attention(q, k, v)
        return x + self.dense(context.reshape(batch, seq, hidden))


def sequence_parallel_loss(logits, labels):
    """The mean over all tokens; the engine averages gradients over sequence and data parallel together."""
    group = groups._get_sequence_parallel_group()
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    with torch.no_grad():
        count = (labels != -100).sum()
        dist.all_reduce(count, group=group)
    return loss * dist.get_world_size(group) / count
