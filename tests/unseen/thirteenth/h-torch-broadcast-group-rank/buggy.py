"""Broadcast with a gradient: the backward reduces to the source rank.

Source: pytorch/pytorch issue #130515, PR #190583.
"""
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
        ctx.rank = dist.get_rank(group=group)  # BUG
        # torch.distributed makes all the calls in place
        # we allocate new tensors to avoid this
        tensor = tensor.clone()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        gx = _Reduce.apply(ctx.src, dist.ReduceOp.SUM, ctx.group, grad_output)
        if ctx.src != ctx.rank:
            gx.zero_()
        return (None, None, gx)


def broadcast(tensor: torch.Tensor, src: int, group=dist.group.WORLD):
    """``src`` is a global rank."""
    return _Broadcast.apply(src, group, tensor)


def share_prompt(prompt_embeddings, tp_group):
    src = dist.get_global_rank(tp_group, 0)
    return broadcast(prompt_embeddings, src, group=tp_group)
