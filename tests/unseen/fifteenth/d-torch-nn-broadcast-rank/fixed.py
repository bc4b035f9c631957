# Reduced from torch/distributed/nn/functional.py (pytorch/pytorch issue 130515, PR 190583, read).
# `src` of a broadcast is a global rank; the backward keeps the summed gradient on the source only.
# What happens: in a subgroup whose ranks are not 0..n-1 the test fails on the source too and its
# gradient is zero.
import torch
import torch.distributed as dist
from torch.autograd import Function


class _Reduce(Function):
    @staticmethod
    def forward(ctx, src, op, group, tensor):
        ctx.src, ctx.group = src, group
        tensor = tensor.clone()
        dist.reduce(tensor, src, op=op, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return (None, None, None, _Broadcast.apply(ctx.src, ctx.group, grad_output))


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src = src
        ctx.group = group
        ctx.rank = dist.get_rank()
        # torch.distributed makes all the calls in place, hence the clone
        tensor = tensor.clone()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        gx = _Reduce.apply(ctx.src, dist.ReduceOp.SUM, ctx.group, grad_output)
        if ctx.src != ctx.rank:
            gx.zero_()
        return (None, None, gx)


def broadcast(tensor, src, group=dist.group.WORLD):
    """Broadcast with autograd; `src` is the global rank of the source."""
    return _Broadcast.apply(src, group, tensor)
