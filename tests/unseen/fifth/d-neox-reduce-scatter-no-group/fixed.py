"""Sequence-parallel region switches."""
import torch
from megatron import mpu


def _gather_along_seq_dim(input_):
    world_size = mpu.get_model_parallel_world_size()
    if world_size == 1:
        return input_
    shape = list(input_.size())
    shape[0] *= world_size
    output = torch.empty(shape, dtype=input_.dtype, device=input_.device)
    torch.distributed.all_gather_into_tensor(output, input_.contiguous(), group=mpu.get_model_parallel_group())
    return output


def _reduce_scatter_along_seq_dim(input_):
    world_size = mpu.get_model_parallel_world_size()
    if world_size == 1:
        return input_
    shape = list(input_.size())
    shape[0] //= world_size
    output = torch.empty(shape, dtype=input_.dtype, device=input_.device)
    torch.distributed.reduce_scatter_tensor(output, input_.contiguous(), group=mpu.get_model_parallel_group())
    return output


class _GatherFromSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_):
        return _gather_along_seq_dim(input_)

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce_scatter_along_seq_dim(grad_output)
