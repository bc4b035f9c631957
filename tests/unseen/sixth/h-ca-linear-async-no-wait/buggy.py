"""Column-parallel linear that overlaps the dgrad all-reduce with the wgrad GEMM."""
import torch
import torch.distributed as dist


class LinearWithAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, weight, bias, process_group, async_grad_allreduce):
        ctx.save_for_backward(input_, weight)
        ctx.use_bias = bias is not None
        ctx.process_group = process_group
        ctx.async_grad_allreduce = async_grad_allreduce
        output = torch.matmul(input_, weight.t())
        return output + bias if bias is not None else output

    @staticmethod
    def backward(ctx, grad_output):
        input_, weight = ctx.saved_tensors
        grad_input = grad_output.matmul(weight)
        grad_output = grad_output.reshape(-1, grad_output.shape[-1])
        input_ = input_.reshape(-1, input_.shape[-1])
        if ctx.async_grad_allreduce:
            handle = dist.all_reduce(grad_input, group=ctx.process_group, async_op=True)
        grad_weight = grad_output.t().matmul(input_)
        grad_bias = grad_output.sum(dim=0) if ctx.use_bias else None
        return grad_input, grad_weight, grad_bias, None, None  # BUG: the all-reduce may still run
