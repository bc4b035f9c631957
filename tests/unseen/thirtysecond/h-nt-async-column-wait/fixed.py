"""Column-parallel linear with communication overlapped in backward.
huggingface/nanotron, tensor_parallel/functional.py, from memory.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode


class _ColumnLinearAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, group, tp_mode):
        ctx.save_for_backward(tensor, weight)
        ctx.group, ctx.tp_mode = group, tp_mode
        if tp_mode is TensorParallelLinearMode.REDUCE_SCATTER:
            total = torch.empty(tensor.shape[0] * group.size(), *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
            dist.all_gather_into_tensor(total, tensor.contiguous(), group=group)
            return F.linear(total, weight)
        return F.linear(tensor, weight)

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        group = ctx.group
        grad_output_2d = grad_output.flatten(0, -2)
        if ctx.tp_mode is TensorParallelLinearMode.REDUCE_SCATTER:
            total = torch.empty(tensor.shape[0] * group.size(), *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
            gather = dist.all_gather_into_tensor(total, tensor.contiguous(), group=group, async_op=True)
            grad_total = grad_output.matmul(weight)
            gather.wait()
            sub_grad = torch.empty_like(tensor, memory_format=torch.contiguous_format)
            scatter = dist.reduce_scatter_tensor(sub_grad, grad_total.contiguous(), group=group, async_op=True)
            grad_weight = grad_output_2d.t().matmul(total.flatten(0, -2))
            scatter.wait()
            return sub_grad, grad_weight, None, None

        grad_tensor = grad_output.matmul(weight)
        handle = dist.all_reduce(grad_tensor, group=group, async_op=True)
        grad_weight = grad_output_2d.t().matmul(tensor.flatten(0, -2))
        handle.wait()
        return grad_tensor, grad_weight, None, None


def column_linear(tensor, weight, group, tp_mode):
    return _ColumnLinearAsyncCommunication.apply(tensor, weight, group, tp_mode)
