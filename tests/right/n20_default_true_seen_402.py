import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def all_gather_raw(x, group):
    n = dist.get_world_size(group)
    out = torch.empty(n * x.shape[0], *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def reduce_scatter_raw(x, group):
    n = dist.get_world_size(group)
    out = torch.empty(x.shape[0] // n, *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class FusedDense(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, process_group, sequence_parallel):
        ctx.process_group = process_group
        ctx.sequence_parallel = sequence_parallel
        if process_group is not None and sequence_parallel:
            total_x = all_gather_raw(x, process_group)
        else:
            total_x = x
        ctx.save_for_backward(x, weight)
        return F.linear(total_x, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        total_x = x
        if ctx.process_group is not None and ctx.sequence_parallel:
            total_x = all_gather_raw(x, ctx.process_group)
        grad_input = grad_output @ weight
        if ctx.process_group is not None and ctx.sequence_parallel:
            grad_input = reduce_scatter_raw(grad_input, ctx.process_group)
        grad_weight = grad_output.flatten(0, -2).t() @ total_x.flatten(0, -2)
        grad_bias = grad_output.flatten(0, -2).sum(0)
        return grad_input, grad_weight, grad_bias, None, None


class ColumnParallelLinear(nn.Linear):
    sequence_parallel = True

    def __init__(self, i, o, group):
        super().__init__(i, o // dist.get_world_size(group))
        self.group = group

    def forward(self, x):
        return FusedDense.apply(x, self.weight, self.bias, self.group, self.sequence_parallel)
