"""Tensor-parallel linear as one autograd Function.
OpenBMB/BMTrain abcd7c8, "fix tp".
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def all_gather(x, group):
    out = torch.empty(x.shape[0] * group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def reduce_scatter(x, group):
    out = torch.empty(x.shape[0] // group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class OpParallelLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, group, gather_input, reduce_output_type):
        ctx.save_for_backward(input, weight)
        ctx.group, ctx.gather_input, ctx.reduce_output_type = group, gather_input, reduce_output_type
        all_input = all_gather(input, group) if gather_input else input
        output = F.linear(all_input, weight)
        if reduce_output_type == "allreduce":
            dist.all_reduce(output, group=group)
        elif reduce_output_type == "reducescatter":
            output = reduce_scatter(output, group)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        if ctx.reduce_output_type == "reducescatter":
            grad_output = all_gather(grad_output, ctx.group)
        all_input = all_gather(input, ctx.group) if ctx.gather_input else input
        grad_weight = grad_output.flatten(0, -2).t().matmul(all_input.flatten(0, -2))
        grad_all_input = grad_output.matmul(weight)
        if ctx.gather_input:
            grad_input = reduce_scatter(grad_all_input, ctx.group)
        else:
            grad_input = grad_all_input  # BUG
        return grad_input, grad_weight, None, None, None


class ColumnParallelLinear(torch.nn.Module):
    def __init__(self, weight_shard, group, gather_input):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)
        self.group, self.gather_input = group, gather_input

    def forward(self, x):
        return OpParallelLinear.apply(x, self.weight, self.group, self.gather_input, None)


class RowParallelLinear(torch.nn.Module):
    def __init__(self, weight_shard, group, all_reduce_output):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)
        self.group, self.mode = group, "allreduce" if all_reduce_output else "reducescatter"

    def forward(self, x):
        return OpParallelLinear.apply(x, self.weight, self.group, False, self.mode)
