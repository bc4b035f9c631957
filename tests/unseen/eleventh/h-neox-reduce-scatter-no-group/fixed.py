"""Reduce-scatter of the sequence dimension.

Reduced from EleutherAI/gpt-neox f2812102ca (Add model parallel group to reduce scatter, #1281).
"""
import torch
from megatron.mpu import get_model_parallel_group, get_model_parallel_world_size

# spmd: mesh dense = dp, mp


def _gather_along_seq_dim(input_, seq_dim):
    outputs = [torch.empty_like(input_) for _ in range(get_model_parallel_world_size())]
    torch.distributed.all_gather(outputs, input_.contiguous(), group=get_model_parallel_group())
    return torch.cat(outputs, dim=seq_dim)


def _reduce_scatter_along_seq_dim(input_, seq_dim):
    world_size = get_model_parallel_world_size()
    if world_size == 1:
        return input_
    tensor_list = [t.contiguous() for t in torch.split(input_, input_.shape[seq_dim] // world_size, seq_dim)]
    output = torch.empty_like(tensor_list[0])
    torch.distributed.reduce_scatter(output, tensor_list, group=get_model_parallel_group())
    return output


class _ReduceScatterToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, seq_dim):
        ctx.seq_dim = seq_dim
        return _reduce_scatter_along_seq_dim(input_, seq_dim)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather_along_seq_dim(grad_output, ctx.seq_dim), None


# spmd: input_: {dp: V, mp: P} -> {dp: V, mp: V}
def reduce_scatter_to_sequence_parallel_region(input_, seq_dim=0):
    return _ReduceScatterToModelParallelRegion.apply(input_, seq_dim)
