"""Expert-parallel mixture-of-experts block whose tokens are the same on all ranks."""
import torch
import torch.distributed as dist
from torch import nn


class AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class AllReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class SparseMoeBlock(nn.Module):
    def __init__(self, router, local_experts, num_experts, ep_group):
        super().__init__()
        self.router, self.experts, self.group = router, local_experts, ep_group
        self.num_local = num_experts // dist.get_world_size(ep_group)
        self.first = dist.get_rank(ep_group) * self.num_local

    def forward(self, hidden):
        scores, indices = self.router(hidden)  # [tokens, top_k]
        local = (indices >= self.first) & (indices < self.first + self.num_local)
        scores = AllReduceBackward.apply(scores, self.group)
        scores = scores.masked_fill(~local, 0.0)
        x = AllReduceBackward.apply(hidden, self.group)
        out = self.experts(x, (indices - self.first).clamp(0, self.num_local - 1), scores)
        return AllReduceForward.apply(out, self.group)
