# microsoft/Megatron-DeepSpeed pull request 406 (commit 1bfc35c4)
"""Ulysses attention of ParallelAttention: heads are scattered, the sequence is gathered."""
import torch
import torch.distributed as dist
from torch import nn


def single_all_to_all(input, scatter_idx, gather_idx, group):
    world_size = dist.get_world_size(group)
    inputs = [t.contiguous() for t in input.chunk(world_size, dim=scatter_idx)]
    outputs = [torch.empty_like(t) for t in inputs]
    dist.all_to_all(outputs, inputs, group=group)
    return torch.cat(outputs, dim=gather_idx)


class _SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input, scatter_idx, gather_idx):
        ctx.group, ctx.scatter_idx, ctx.gather_idx = group, scatter_idx, gather_idx
        return single_all_to_all(input, scatter_idx, gather_idx, group)

    @staticmethod
    def backward(ctx, grad_output):
        return None, single_all_to_all(grad_output, ctx.gather_idx, ctx.scatter_idx, ctx.group), None, None


class DistributedAttention(nn.Module):
    def __init__(self, local_attention, sequence_process_group, scatter_idx=2, gather_idx=0):
        super().__init__()
        self.local_attn, self.spg = local_attention, sequence_process_group
        self.scatter_idx, self.gather_idx = scatter_idx, gather_idx

    def forward(self, query, key, value):
        query, key, value = (
            _SeqAllToAll.apply(self.spg, t, self.scatter_idx, self.gather_idx) for t in (query, key, value)
        )
        context_layer = self.local_attn(query, key, value)
        return _SeqAllToAll.apply(self.spg, context_layer, self.gather_idx, self.scatter_idx)


class ParallelAttention(nn.Module):
    def __init__(self, use_flash_attn, core_attention, flash_attention, sequence_parallel_group):
        super().__init__()
        self.use_flash_attn = use_flash_attn
        local_attn = flash_attention if use_flash_attn else core_attention
        self.dist_attn = DistributedAttention(
            local_attn, sequence_parallel_group, gather_idx=1 if use_flash_attn else 0
        )

    def forward(self, query_layer, key_layer, value_layer):
        # [s / sp, b, nh, hd]; flash attention works on [b, s, nh, hd], core attention on [s, b, nh, hd]
        if self.use_flash_attn:
            q, k, v = (t.transpose(0, 1).contiguous() for t in (query_layer, key_layer, value_layer))
            return self.dist_attn(q, k, v).transpose(0, 1).contiguous()
        return self.dist_attn(query_layer, key_layer, value_layer)
