"""Keep the two copies of the tied embedding equal across pipeline stages."""
import torch
from megatron.core import parallel_state


def allreduce_word_embedding_grads(model, config):
    if not config.share_embeddings_and_output_weights:
        return
    if parallel_state.get_pipeline_model_parallel_world_size() == 1:
        return
    if parallel_state.is_pipeline_last_stage():  # BUG: the first stage holds the other copy and never joins
        weight = model.shared_embedding_or_output_weight()
        grad = weight.main_grad if hasattr(weight, "main_grad") else weight.grad
        torch.distributed.all_reduce(grad, group=parallel_state.get_embedding_group())


def step(model, optimizer, config):
    model.finish_grad_sync()
    allreduce_word_embedding_grads(model, config)
    optimizer.step()
