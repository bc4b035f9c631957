"""Column-parallel matmul, input gradient all-reduce overlapped with the weight gradient."""
import torch
from megatron.core.parallel_state import get_tensor_model_parallel_group


class LinearWithGradAccumulationAndAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, allreduce_dgrad):
        ctx.save_for_backward(input, weight)
        ctx.use_bias = bias is not None
        ctx.allreduce_dgrad = allreduce_dgrad
        output = torch.matmul(input, weight.t())
        if bias is not None:
            output = output + bias
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        grad_input = grad_output.matmul(weight)
        if ctx.allreduce_dgrad:
            handle = torch.distributed.all_reduce(
                grad_input, group=get_tensor_model_parallel_group(), async_op=True
            )
        grad_output = grad_output.contiguous().view(-1, grad_output.shape[-1])
        total_input = input.reshape(-1, input.shape[-1])
        grad_weight = grad_output.t().matmul(total_input)
        grad_bias = grad_output.sum(dim=0) if ctx.use_bias else None
        if ctx.allreduce_dgrad:
            handle.wait()
        return grad_input, grad_weight, grad_bias, None
