"""Column-parallel linear in reduce-scatter mode: the local shard is saved, the backward pass gathers the input again."""

import torch
import torch.nn.functional as F
from nanotron import distributed as dist
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode


class ColumnLinearRecompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, bias, group, tp_recompute_allgather):
        ctx.use_bias = bias is not None
        ctx.group = group
        ctx.tp_recompute_allgather = tp_recompute_allgather
        ctx.input_size = tensor.shape
        sharded_batch_size, *rest = tensor.shape
        gathered = torch.empty(sharded_batch_size * group.size(), *rest, device=tensor.device, dtype=tensor.dtype)
        dist.all_gather_into_tensor(gathered, tensor.contiguous(), group=group)
        if tp_recompute_allgather:
            ctx.save_for_backward(tensor, weight, bias)
        else:
            ctx.save_for_backward(gathered, weight, bias)
        return F.linear(gathered, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        saved, weight, bias = ctx.saved_tensors
        group = ctx.group
        if ctx.tp_recompute_allgather:
            # The same gather as in the forward pass: it recomputes the input of the weight gradient.
            sharded_batch_size, *rest = saved.shape
            total_tensor = torch.empty(sharded_batch_size * group.size(), *rest, device=saved.device, dtype=saved.dtype)
            handle_gather = dist.all_gather_into_tensor(total_tensor, saved.contiguous(), group=group, async_op=True)
        else:
            total_tensor, handle_gather = saved, None

        grad_tensor = grad_output.matmul(weight)
        sub_grad_tensor = torch.empty(ctx.input_size, dtype=grad_tensor.dtype, device=grad_tensor.device, requires_grad=False)
        handle_scatter = dist.reduce_scatter_tensor(sub_grad_tensor, grad_tensor, group=group, async_op=True)

        grad_output = grad_output.contiguous().flatten(0, -2)
        if handle_gather is not None:
            handle_gather.wait()
        total_tensor = total_tensor.flatten(0, -2)
        grad_weight = grad_output.t().matmul(total_tensor)
        grad_bias = grad_output.sum(dim=0) if ctx.use_bias else None
        handle_scatter.wait()
        return sub_grad_tensor, grad_weight, grad_bias, None, None


class ColumnLinearAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, bias, group):
        ctx.use_bias = bias is not None
        ctx.group = group
        ctx.save_for_backward(tensor, weight)
        return F.linear(tensor, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        grad_tensor = grad_output.matmul(weight)
        handle = dist.all_reduce(grad_tensor, group=ctx.group, async_op=True)
        grad_output = grad_output.contiguous().flatten(0, -2)
        grad_weight = grad_output.t().matmul(tensor.flatten(0, -2))
        grad_bias = grad_output.sum(dim=0) if ctx.use_bias else None
        handle.wait()
        return grad_tensor, grad_weight, grad_bias, None


def column_linear(input, weight, bias, group, tp_mode, tp_recompute_allgather=True):
    if tp_mode is TensorParallelLinearMode.ALL_REDUCE:
        return ColumnLinearAllReduce.apply(input, weight, bias, group)
    if tp_mode is TensorParallelLinearMode.REDUCE_SCATTER:
        return ColumnLinearRecompute.apply(input, weight, bias, group, tp_recompute_allgather)
    raise ValueError(f"Got unexpected mode: {tp_mode}.")
