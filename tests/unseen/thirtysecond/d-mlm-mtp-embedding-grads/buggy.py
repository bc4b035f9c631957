"""Synchronise the copies of the word embedding on the first and last pipeline stage.
NVIDIA/Megatron-LM, distributed/finalize_model_grads.py, from memory.
"""
import torch
from megatron.core import parallel_state
from megatron.core.utils import get_attr_wrapped_model, get_model_config


class MTPHead(torch.nn.Module):
    """Last stage: multi-token prediction embeds the shifted tokens with its own copy of the table."""

    def __init__(self, embedding, mtp_block, output_layer):
        super().__init__()
        self.embedding, self.mtp, self.output_layer = embedding, mtp_block, output_layer

    def forward(self, hidden_states, input_ids, position_ids):
        decoder_input = self.embedding(torch.roll(input_ids, -1, dims=-1), position_ids)
        return self.output_layer(self.mtp(hidden_states, decoder_input))


def embedding_or_output_weight(model_module):
    if model_module.pre_process or getattr(model_module, "mtp_process", False):
        return model_module.embedding.word_embeddings.weight
    return model_module.output_layer.weight


def _allreduce_word_embedding_grads(model, config):
    if (
        parallel_state.is_rank_in_embedding_group(ignore_virtual=True)
        and torch.distributed.get_world_size(parallel_state.get_embedding_group()) > 1
    ):
        model_module = model[0] if parallel_state.is_pipeline_first_stage(ignore_virtual=True) else model[-1]
        model_module = get_attr_wrapped_model(model_module, "pre_process", return_model_obj=True)
        if model_module.share_embeddings_and_output_weights:  # BUG
            weight = embedding_or_output_weight(model_module)
            torch.distributed.all_reduce(weight.main_grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model):
    config = get_model_config(model[0])
    for model_chunk in model:
        model_chunk.finish_grad_sync()
    _allreduce_word_embedding_grads(model, config)
