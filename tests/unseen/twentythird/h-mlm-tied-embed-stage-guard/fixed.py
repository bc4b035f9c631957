"""Gradients of the word embedding shared by the first and the last pipeline stage."""
import torch
from megatron.core import parallel_state


def allreduce_word_embedding_grads(model, config):
    if (
        parallel_state.is_rank_in_embedding_group(ignore_virtual=True)
        and parallel_state.get_pipeline_model_parallel_world_size() > 1
    ):
        if model.share_embeddings_and_output_weights:
            weight = model.shared_embedding_or_output_weight()
            grad = weight.main_grad
            torch.distributed.all_reduce(grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model, config, dp_group):
    for p in model.parameters():
        p.main_grad.div_(torch.distributed.get_world_size(dp_group))
        torch.distributed.all_reduce(p.main_grad, group=dp_group)
    allreduce_word_embedding_grads(model, config)
