"""Expert-parallel experts that gather all tokens and keep their own experts' share.

Source: https://github.com/NVIDIA-NeMo/Automodel/pull/2995
Wrong: the routing weights are gathered with the plain collective, so the router gets no gradient
from the main loss (only the auxiliary losses still train it).
Repair: gather them with the same differentiable gather as the activations.
"""
import torch
import torch.distributed as dist
import torch.nn as nn


class _AllGatherTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.size(0) * group.size(), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.size(0) // ctx.group.size(), *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class _ReduceScatterTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.size(0) // group.size(), *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.size(0) * ctx.group.size(), *grad.shape[1:])
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class GroupedExperts(nn.Module):
    def __init__(self, experts, ep_group):
        super().__init__()
        self.experts = nn.ModuleList(experts)  # the experts of this rank
        self.ep_group = ep_group
        self.first = ep_group.rank() * len(experts)

    def forward(self, x, weights, indices):
        # x [t, h], weights [t, k], indices [t, k] of this rank's own tokens
        x = _AllGatherTokens.apply(x, self.ep_group)
        all_indices = [torch.empty_like(indices) for _ in range(self.ep_group.size())]
        dist.all_gather(all_indices, indices, group=self.ep_group)
        indices = torch.cat(all_indices)
        weights = _AllGatherTokens.apply(weights, self.ep_group)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            scale = (weights * (indices == self.first + i)).sum(-1, keepdim=True)
            y = y + scale * expert(x)
        return _ReduceScatterTokens.apply(y, self.ep_group)
