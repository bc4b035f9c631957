"""Experts that gather all tokens of the expert-parallel ranks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@torch.no_grad()
def _gather(x, group):
    out = x.new_empty(x.shape[0] * dist.get_world_size(group), *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


@torch.no_grad()
def _scatter_sum(x, group):
    out = x.new_empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class _AllGatherTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _gather(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _scatter_sum(grad, ctx.group), None


class _ReduceScatterTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _scatter_sum(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _gather(grad, ctx.group), None


class GroupedExperts(nn.Module):
    def __init__(self, num_experts, dim, inter_dim, ep_group):
        super().__init__()
        self.ep_group = ep_group
        self.num_local = num_experts // dist.get_world_size(ep_group)
        self.first = dist.get_rank(ep_group) * self.num_local
        self.gate_up = nn.Parameter(torch.empty(self.num_local, dim, 2 * inter_dim))
        self.down = nn.Parameter(torch.empty(self.num_local, inter_dim, dim))

    def forward(self, x, weights, indices):
        # x: [tokens, dim]; weights, indices: [tokens, topk] from the router of this rank
        x = _AllGatherTokens.apply(x, self.ep_group)
        weights = _gather(weights, self.ep_group)  # BUG
        indices = _gather(indices, self.ep_group)
        y = torch.zeros_like(x)
        for e in range(self.num_local):
            tok, slot = torch.where(indices == self.first + e)
            gate, up = (x[tok] @ self.gate_up[e]).chunk(2, dim=-1)
            out = (F.silu(gate) * up) @ self.down[e]
            y = y.index_add(0, tok, out * weights[tok, slot, None])
        return _ReduceScatterTokens.apply(y, self.ep_group)
