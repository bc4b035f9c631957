"""Vocabulary-parallel embedding with a mask, and a learned position embedding that is added before the sequence is split."""

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.tensor_parallel.utils import VocabUtility


class MaskedVocabEmbedding(torch.nn.Module):
    def __init__(self, num_embeddings, embedding_dim, reduce_scatter_embeddings=False):
        super().__init__()
        self.tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.reduce_scatter_embeddings = reduce_scatter_embeddings
        self.vocab_start_index, self.vocab_end_index = VocabUtility.vocab_range_from_global_vocab_size(
            num_embeddings, parallel_state.get_tensor_model_parallel_rank(), self.tp_size
        )
        rows = self.vocab_end_index - self.vocab_start_index
        self.weight = torch.nn.Parameter(torch.empty(rows, embedding_dim))
        setattr(self.weight, "tensor_model_parallel", True)
        setattr(self.weight, "partition_dim", 0)

    def forward(self, input_):
        if self.tp_size > 1:
            input_mask = (input_ < self.vocab_start_index) | (input_ >= self.vocab_end_index)
            masked_input = input_.clone() - self.vocab_start_index
            masked_input[input_mask] = 0
        else:
            masked_input = input_
        output_parallel = F.embedding(masked_input, self.weight)
        if self.tp_size > 1:
            output_parallel[input_mask, :] = 0.0
        if self.reduce_scatter_embeddings:
            # [b s h] -> [s b h], which is what the scatter along the first dim needs.
            return reduce_scatter_to_sequence_parallel_region(output_parallel.transpose(0, 1).contiguous())
        return reduce_from_tensor_model_parallel_region(output_parallel)


class LanguageModelEmbedding(torch.nn.Module):
    def __init__(self, config, vocab_size, max_sequence_length):
        super().__init__()
        self.config = config
        self.word_embeddings = MaskedVocabEmbedding(vocab_size, config.hidden_size)
        self.position_embeddings = torch.nn.Embedding(max_sequence_length, config.hidden_size)
        self.embedding_dropout = torch.nn.Dropout(config.hidden_dropout)

    def forward(self, input_ids, position_ids):
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        embeddings = embeddings.transpose(0, 1).contiguous()
        # The scatter gathers in its backward, so the position embedding sees the gradient of the whole sequence.
        if self.config.sequence_parallel:
            embeddings = scatter_to_sequence_parallel_region(embeddings)
        return self.embedding_dropout(embeddings)
