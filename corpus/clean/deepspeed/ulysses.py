"""Attention with an all-to-all before and after: sequence split outside, heads split inside."""

import torch
import torch.distributed as dist


def exchange(x, scatter_dim, gather_dim, group):
    size = dist.get_world_size(group)
    parts = [part.contiguous() for part in torch.tensor_split(x, size, dim=scatter_dim)]
    out = [torch.empty_like(part) for part in parts]
    dist.all_to_all(out, parts, group=group)
    return torch.cat(out, dim=gather_dim).contiguous()


class SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, scatter_dim, gather_dim):
        ctx.group, ctx.scatter_dim, ctx.gather_dim = group, scatter_dim, gather_dim
        return exchange(x, scatter_dim, gather_dim, group)

    @staticmethod
    def backward(ctx, grad):
        return None, SeqAllToAll.apply(ctx.group, grad, ctx.gather_dim, ctx.scatter_dim), None, None


class DistributedAttention(torch.nn.Module):
    def __init__(self, local_attention, sequence_group):
        super().__init__()
        self.attention, self.group = local_attention, sequence_group

    def forward(self, query, key, value):
        q, k, v = (SeqAllToAll.apply(self.group, t, 2, 0) for t in (query, key, value))
        return SeqAllToAll.apply(self.group, self.attention(q, k, v), 0, 2)
