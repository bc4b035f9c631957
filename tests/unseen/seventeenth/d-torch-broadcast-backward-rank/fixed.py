# Source: pytorch/pytorch issue #130515, PR #190583, torch/distributed/nn/functional.py (_Broadcast)
# src is a global rank, while the rank kept in ctx is the one within the group. In a subgroup the
# comparison in backward fails on the source rank as well, and its gradient is set to zero.
# Repair: keep the global rank.
import torch
import torch.distributed as dist
from torch.autograd import Function
from torch.distributed import ReduceOp, group


class _Reduce(Function):
    @staticmethod
    def forward(ctx, src, op, group, tensor):
        ctx.src = src
        ctx.group = group
        tensor = tensor.clone()
        dist.reduce(tensor, src, op=op, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return (None, None, None) + (_Broadcast.apply(ctx.src, ctx.group, grad_output),)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src = src
        ctx.group = group
        ctx.rank = dist.get_rank()
        # torch.distributed makes all the calls in place
        # we allocate new tensors to avoid this
        tensor = tensor.clone()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        gx = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, grad_output)
        if ctx.src != ctx.rank:
            gx.zero_()
        return (None, None, gx)


def broadcast(tensor, src, group=group.WORLD):
    """
    Broadcasts the tensor to the whole group.

    Arguments:
        tensor (Tensor): Data to be sent if ``src`` is the rank of current process.
        src (int): Source rank (global).
        group (ProcessGroup, optional): The process group to work on.
    """
    return _Broadcast.apply(src, group, tensor)


def forward_with_shared_encoder(encoder, head, x, src, subgroup):
    """The encoder runs on rank src of the subgroup, every member runs its own head."""
    if dist.get_rank() == src:
        features = encoder(x)
    else:
        features = torch.empty_like(x).requires_grad_()
    return head(broadcast(features, src, group=subgroup))
