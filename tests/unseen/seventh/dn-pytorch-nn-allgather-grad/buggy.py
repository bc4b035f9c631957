"""Differentiable all_gather and reduce_scatter.

Source: https://github.com/pytorch/pytorch/issues/120386
"""
import torch
import torch.distributed as dist
from torch.autograd import Function
from torch.distributed import ReduceOp


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, op, group, tensor, *input_tensor_list):
        ctx.group = group
        # contiguous tensors are needed by the collective
        tensor = tensor.contiguous()
        inputs = [t.contiguous() for t in input_tensor_list]
        dist.reduce_scatter(tensor, inputs, op=op, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return (None, None, None) + _AllGather.apply(ctx.group, grad_output)


class _AllGather(Function):
    @staticmethod
    def forward(ctx, group, tensor):
        tensor = tensor.contiguous()
        ctx.group = group
        out = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group=group))]
        dist.all_gather(out, tensor, group=group)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grad_outputs):
        rank = dist.get_rank(group=ctx.group)
        gx = torch.empty_like(grad_outputs[rank])
        _ReduceScatter.apply(ReduceOp.SUM, ctx.group, gx, *grad_outputs)  # BUG
        return None, gx


def all_gather(tensor, group=dist.group.WORLD):
    return _AllGather.apply(group, tensor)
