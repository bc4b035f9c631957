"""Differentiable broadcast of a prompt from one rank of a subgroup.

Source: https://github.com/pytorch/pytorch/issues/130515
Wrong: src is a global rank, ctx.rank is the rank inside the group; in a group that does not start
at global rank 0 they never agree as meant, and the source's gradient is set to zero.
Repair: compare global with global rank.
"""
import torch
import torch.distributed as dist
from torch.autograd import Function


class _Reduce(Function):
    @staticmethod
    def forward(ctx, dst, group, tensor):
        tensor = tensor.contiguous().clone()
        dist.reduce(tensor, dst, group=group)
        return tensor


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src = src
        ctx.group = group
        ctx.rank = dist.get_rank()
        tensor = tensor.clone()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        gx = _Reduce.apply(ctx.src, ctx.group, grad_output)
        if ctx.src != ctx.rank:
            gx.zero_()
        return None, None, gx


class PromptEncoder(torch.nn.Module):
    """The prompt is trained on the first rank of each replica and used by all of its ranks."""

    def __init__(self, length, dim, replica_group):
        super().__init__()
        self.prompt = torch.nn.Parameter(torch.zeros(length, dim))
        self.group = replica_group
        self.src = dist.get_global_rank(replica_group, 0)

    def forward(self, x):
        prompt = _Broadcast.apply(self.src, self.group, self.prompt)
        return torch.cat([prompt.expand(x.size(0), -1, -1), x], dim=1)
