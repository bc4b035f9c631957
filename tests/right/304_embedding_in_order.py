"""Gradients of a shared embedding, summed over its copies before the buffers are scattered, or where nothing is scattered."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


def reduce_scatter_grads(grad_data, dp_group):
    shard = grad_data.chunk(dp_group.size())[dp_group.rank()]
    dist.reduce_scatter_tensor(shard, grad_data, group=dp_group)


def all_reduce_grads(grad_data, dp_group):
    dist.all_reduce(grad_data, group=dp_group)


def allreduce_embedding_grads(model):
    if parallel_state.is_rank_in_embedding_group():
        grad = model.shared_weight().main_grad
        dist.all_reduce(grad, group=parallel_state.get_embedding_group())


def finalize_scattered(model, grad_data, dp_group):
    allreduce_embedding_grads(model)
    reduce_scatter_grads(grad_data, dp_group)


def finalize_summed(model, grad_data, dp_group):
    all_reduce_grads(grad_data, dp_group)
    allreduce_embedding_grads(model)


def finalize(model, grad_data, dp_group, distributed):
    if distributed:
        allreduce_embedding_grads(model)
        reduce_scatter_grads(grad_data, dp_group)
    else:
        all_reduce_grads(grad_data, dp_group)
        allreduce_embedding_grads(model)
