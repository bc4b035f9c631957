"""Linear function with the all-reduce or reduce-scatter of the input gradient issued before the weight gradient."""

# spmd: mesh dense = dp, tp
import torch
from megatron.core.parallel_state import get_global_memory_buffer
from megatron.core.utils import prepare_input_tensors_for_wgrad_compute


def dist_all_gather_func(output, input_, group=None, async_op=False):
    return torch.distributed.all_gather_into_tensor(output, input_, group=group, async_op=async_op)


class LinearWithAsyncCommunication(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, allreduce_dgrad, sequence_parallel, tp_group):
        ctx.save_for_backward(input, weight)
        ctx.use_bias = bias is not None
        ctx.allreduce_dgrad = allreduce_dgrad
        ctx.sequence_parallel = sequence_parallel
        ctx.tp_group = tp_group
        if sequence_parallel:
            dim_size = list(input.size())
            dim_size[0] = dim_size[0] * tp_group.size()
            all_gather_buffer = get_global_memory_buffer().get_tensor(dim_size, input.dtype, "mpu")
            dist_all_gather_func(all_gather_buffer, input, group=tp_group)
            total_input = all_gather_buffer
        else:
            total_input = input
        output = torch.matmul(total_input, weight.t())
        if bias is not None:
            output = output + bias
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        tp_group = ctx.tp_group
        handle = None
        if ctx.sequence_parallel:
            dim_size = list(input.size())
            dim_size[0] = dim_size[0] * tp_group.size()
            all_gather_buffer = get_global_memory_buffer().get_tensor(dim_size, input.dtype, "mpu")
            handle = dist_all_gather_func(all_gather_buffer, input, group=tp_group, async_op=True)
            total_input = all_gather_buffer
        else:
            total_input = input
        grad_input = grad_output.matmul(weight)
        if ctx.sequence_parallel:
            handle.wait()
        grad_output, total_input = prepare_input_tensors_for_wgrad_compute(grad_output, total_input)
        if ctx.allreduce_dgrad:
            handle = torch.distributed.all_reduce(grad_input, group=tp_group, async_op=True)
        if ctx.sequence_parallel:
            assert not ctx.allreduce_dgrad
            sub_grad_input = torch.empty(
                list(input.size()), dtype=input.dtype, device=torch.cuda.current_device(), requires_grad=False
            )
            handle = torch.distributed.reduce_scatter_tensor(sub_grad_input, grad_input, group=tp_group, async_op=True)
        grad_weight = grad_output.t().matmul(total_input)
        grad_bias = grad_output.sum(dim=0) if ctx.use_bias else None
        if ctx.sequence_parallel:
            handle.wait()
            return sub_grad_input, grad_weight, grad_bias, None, None, None
        if ctx.allreduce_dgrad:
            handle.wait()
        return grad_input, grad_weight, grad_bias, None, None, None


class ColumnParallelLinear(torch.nn.Module):
    def __init__(self, hidden, out_per_rank, config, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.sequence_parallel = config.sequence_parallel
        self.allreduce_dgrad = not self.sequence_parallel
        self.weight = torch.nn.Parameter(torch.empty(out_per_rank, hidden))
        self.bias = torch.nn.Parameter(torch.zeros(out_per_rank))
        for parameter in (self.weight, self.bias):
            setattr(parameter, "tensor_model_parallel", True)
            setattr(parameter, "partition_dim", 0)

    def forward(self, x):
        return LinearWithAsyncCommunication.apply(
            x, self.weight, self.bias, self.allreduce_dgrad, self.sequence_parallel, self.tp_group
        )
