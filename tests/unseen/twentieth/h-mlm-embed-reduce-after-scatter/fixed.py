# Megatron-LM, issue 844: the tied embedding lies in different shards of the gradient buffer on the first and the last
# pipeline stage; its two gradients have to be summed before the buffer is reduce-scattered over data parallel.
"""Finish the gradients of a pipeline with tied embeddings and a distributed optimizer."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def reduce_scatter_grads(grad_buffer: torch.Tensor, dp_group: dist.ProcessGroup):
    """Average over data parallel; afterwards only the shard of this rank is valid."""
    shard = grad_buffer.chunk(dist.get_world_size(dp_group))[dist.get_rank(dp_group)]
    dist.reduce_scatter_tensor(shard, grad_buffer, op=dist.ReduceOp.AVG, group=dp_group)


def allreduce_word_embedding_grads(model):
    if mpu.is_rank_in_embedding_group():
        weight = model.shared_embedding_or_output_weight()
        # main_grad is a view of grad_buffer: at its start on the first stage, at its end on the last one
        dist.all_reduce(weight.main_grad, group=mpu.get_embedding_group())


def finalize_model_grads(model):
    allreduce_word_embedding_grads(model)
    reduce_scatter_grads(model.grad_buffer, mpu.get_data_parallel_group())


def train_step(model, optimizer, forward_backward):
    model.grad_buffer.zero_()
    losses = forward_backward(model)
    finalize_model_grads(model)
    optimizer.step()  # each data-parallel rank updates the parameters of its shard, then gathers
    return losses
