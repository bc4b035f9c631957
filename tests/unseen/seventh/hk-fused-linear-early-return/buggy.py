"""Column-parallel projection with a hand-written backward."""
import torch
import torch.distributed as dist
import torch.nn as nn


class ColumnParallelMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group):
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_input = grad_output @ weight
        if not ctx.needs_input_grad[1]:
            return grad_input, None, None  # BUG
        handle = dist.all_reduce(grad_input, group=ctx.group, async_op=True)
        grad_weight = grad_output.flatten(0, -2).t() @ x.flatten(0, -2)
        handle.wait()
        return grad_input, grad_weight, None


class ColumnParallelLinear(nn.Module):
    """x is the same on every rank of the group, the output is split along the last dim."""

    def __init__(self, weight_shard, group, trainable=True):
        super().__init__()
        self.weight = nn.Parameter(weight_shard, requires_grad=trainable)
        self.group = group

    def forward(self, x):
        return ColumnParallelMatmul.apply(x, self.weight, self.group)
