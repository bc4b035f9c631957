# pytorch/pytorch, issue 120386 / pull request 120582 - https://github.com/pytorch/pytorch/pull/120582 (read)
# _AllGather.backward expects _Reduce_Scatter to fill gx in place. For a non-contiguous gx the function
# reduces into a contiguous copy and returns that; gx stays uninitialised and is returned as the gradient.
"""Differentiable all-gather as in torch.distributed.nn.functional, and a caller that transposes."""
import torch
import torch.distributed as dist
from torch.autograd import Function


class _Reduce_Scatter(Function):
    @staticmethod
    def forward(ctx, op, group, tensor, *input_tensor_list):
        ctx.group = group
        tensor = tensor.contiguous()
        dist.reduce_scatter(tensor, [t.contiguous() for t in input_tensor_list], op=op, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return (None, None, None) + _AllGather.apply(ctx.group, grad_output)


class _AllGather(Function):
    @staticmethod
    def forward(ctx, group, tensor):
        tensor = tensor.contiguous()
        ctx.group = group
        out_tensor_list = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group=group))]
        dist.all_gather(out_tensor_list, tensor, group=group)
        return tuple(out_tensor_list)

    @staticmethod
    def backward(ctx, *grad_outputs):
        rank = dist.get_rank(group=ctx.group)
        gx = torch.empty_like(grad_outputs[rank])
        _Reduce_Scatter.apply(dist.ReduceOp.SUM, ctx.group, gx, *grad_outputs)  # BUG: result dropped
        return (None, gx)


def gather_features(x, group):
    # x: [local batch, features]; returns [features, global batch]
    return torch.cat([t.t() for t in _AllGather.apply(group, x)], dim=1)
