"""Finalise gradients: distributed optimizer and an embedding shared by first and last stage."""
import torch
from megatron.core import parallel_state


def reduce_scatter_grads(grad_data, dp_group):
    """Afterwards only this rank's shard of the flat buffer is reduced, the rest is still local."""
    shard = grad_data.chunk(dp_group.size())[dp_group.rank()]
    torch.distributed.reduce_scatter_tensor(
        shard, grad_data, op=torch.distributed.ReduceOp.AVG, group=dp_group
    )


def allreduce_embedding_grads(model):
    if parallel_state.is_rank_in_embedding_group():
        grad = model.shared_embedding_or_output_weight().main_grad  # view of the flat buffer
        torch.distributed.all_reduce(grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model, grad_data, dp_group):
    # first and last stage keep the embedding in different shards of their buffers
    allreduce_embedding_grads(model)
    reduce_scatter_grads(grad_data, dp_group)
