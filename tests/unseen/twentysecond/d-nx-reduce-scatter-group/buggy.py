"""Sequence-parallel region mappings (EleutherAI/gpt-neox#1281)."""
import torch
from megatron.mpu import get_model_parallel_group, get_model_parallel_world_size


def _reduce_scatter_along_seq_dim(input_, seq_dim):
    world_size = get_model_parallel_world_size()
    if world_size == 1:
        return input_
    pieces = [t.contiguous() for t in input_.chunk(world_size, dim=seq_dim)]
    output = torch.empty_like(pieces[0])
    torch.distributed.reduce_scatter(output, pieces)  # BUG: default group instead of the model-parallel one
    return output


def _gather_along_seq_dim(input_, seq_dim):
    world_size = get_model_parallel_world_size()
    if world_size == 1:
        return input_
    pieces = [torch.empty_like(input_) for _ in range(world_size)]
    torch.distributed.all_gather(pieces, input_.contiguous(), group=get_model_parallel_group())
    return torch.cat(pieces, dim=seq_dim)


class _ReduceScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, seq_dim):
        ctx.seq_dim = seq_dim
        return _reduce_scatter_along_seq_dim(input_, seq_dim)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather_along_seq_dim(grad_output, ctx.seq_dim), None
