# Grouped experts that gather all tokens of the expert-parallel group.
import torch
import torch.distributed as dist
import torch.nn as nn


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty((x.shape[0] * group.size(), *x.shape[1:]))
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty((grad.shape[0] // ctx.group.size(), *grad.shape[1:]))
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty((x.shape[0] // group.size(), *x.shape[1:]))
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return _AllGather.apply(grad, ctx.group), None


class GroupedExperts(nn.Module):
    def __init__(self, experts, first_expert, ep_group):
        super().__init__()
        self.experts = nn.ModuleList(experts)
        self.first_expert, self.ep_group = first_expert, ep_group

    def forward(self, x, weights, indices):
        # x: [t, d], weights and indices: [t, k] for the tokens of this rank
        x = _AllGather.apply(x, self.ep_group)
        n = self.ep_group.size()
        all_indices = indices.new_empty((n * indices.shape[0], indices.shape[1]))
        dist.all_gather_into_tensor(all_indices, indices.contiguous(), group=self.ep_group)
        all_weights = weights.new_empty((n * weights.shape[0], weights.shape[1]))
        dist.all_gather_into_tensor(all_weights, weights.contiguous(), group=self.ep_group)  # BUG
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            tok, slot = torch.where(all_indices == self.first_expert + i)
            y = y.index_add(0, tok, expert(x[tok]) * all_weights[tok, slot, None])
        return _ReduceScatter.apply(y, self.ep_group)
