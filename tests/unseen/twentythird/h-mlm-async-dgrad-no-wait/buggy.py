"""Column-parallel linear that overlaps the input-gradient communication."""
import torch
import torch.distributed as dist
from megatron.core.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_world_size,
)


def _gather(x):
    out = torch.empty(
        x.size(0) * get_tensor_model_parallel_world_size(), *x.shape[1:], dtype=x.dtype, device=x.device
    )
    dist.all_gather_into_tensor(out, x.contiguous(), group=get_tensor_model_parallel_group())
    return out


class LinearWithAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, allreduce_dgrad, sequence_parallel):
        ctx.save_for_backward(input, weight)
        ctx.allreduce_dgrad, ctx.sequence_parallel = allreduce_dgrad, sequence_parallel
        total_input = _gather(input) if sequence_parallel else input
        return torch.matmul(total_input, weight.t())

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        total_input = _gather(input) if ctx.sequence_parallel else input
        grad_input = grad_output.matmul(weight)
        group = get_tensor_model_parallel_group()

        if ctx.allreduce_dgrad:
            handle = dist.all_reduce(grad_input, group=group, async_op=True)
        if ctx.sequence_parallel:
            sub_grad_input = torch.empty_like(input, memory_format=torch.contiguous_format)
            handle = dist.reduce_scatter_tensor(sub_grad_input, grad_input, group=group, async_op=True)

        grad_weight = grad_output.flatten(0, -2).t().matmul(total_input.flatten(0, -2))

        if ctx.sequence_parallel:
            return sub_grad_input, grad_weight, None, None  # BUG: returned while still being written
        if ctx.allreduce_dgrad:
            handle.wait()
        return grad_input, grad_weight, None, None
