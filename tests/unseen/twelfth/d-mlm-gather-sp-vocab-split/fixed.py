"""Logits of an extra prediction head that shares the word embeddings."""
import torch
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region,
)


def parallel_lm_logits(input_, word_embeddings_weight, sequence_parallel, parallel_output=True):
    # word_embeddings_weight: [vocab/tp, h]
    if sequence_parallel:
        input_parallel = gather_from_sequence_parallel_region(
            input_,
            tensor_parallel_output_grad=True,
        )
    else:
        input_parallel = copy_to_tensor_model_parallel_region(input_)
    logits_parallel = torch.nn.functional.linear(input_parallel, word_embeddings_weight)
    if parallel_output:
        return logits_parallel
    return gather_from_tensor_model_parallel_region(logits_parallel)


class PredictionHead(torch.nn.Module):
    def __init__(self, config, norm, shared_embedding_weight):
        super().__init__()
        self.config, self.norm, self.weight = config, norm, shared_embedding_weight

    def forward(self, hidden_states):
        return parallel_lm_logits(self.norm(hidden_states), self.weight, self.config.sequence_parallel)
