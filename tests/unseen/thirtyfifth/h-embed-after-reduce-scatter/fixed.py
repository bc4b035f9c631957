"""Finish the gradients of a pipeline-parallel model with a distributed optimizer."""
# thread: NVIDIA/Megatron-LM#844
import torch.distributed as dist
from megatron.core import parallel_state


def reduce_scatter_grad_buffer(buffer):
    # buffer: all main_grad of this stage in one flat tensor; each rank keeps its shard in place
    group = parallel_state.get_data_parallel_group()
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    buffer.div_(world)
    shard = buffer.view(world, -1)[rank]
    dist.reduce_scatter_tensor(shard, buffer, group=group)


def allreduce_embedding_grad(model):
    # first and last stage hold copies of the tied word embedding, at different buffer offsets
    if parallel_state.is_rank_in_embedding_group():
        weight = model.shared_embedding_or_output_weight()
        dist.all_reduce(weight.main_grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model):
    allreduce_embedding_grad(model)
    reduce_scatter_grad_buffer(model.grad_buffer)
