# Reduces Megatron-LM's language model embedding: with sequence parallelism each tensor-parallel rank holds other
# tokens, and the dropout that follows the scatter draws the same mask on all of them.
import torch
from megatron.core import tensor_parallel
from megatron.core.tensor_parallel.mappings import scatter_to_sequence_parallel_region


class LanguageModelEmbedding(torch.nn.Module):
    def __init__(self, config, vocab_size, max_sequence_length):
        super().__init__()
        self.config = config
        self.word_embeddings = tensor_parallel.VocabParallelEmbedding(
            vocab_size, config.hidden_size, init_method=config.init_method, config=config
        )
        self.position_embeddings = torch.nn.Embedding(max_sequence_length, config.hidden_size)
        self.embedding_dropout = torch.nn.Dropout(config.hidden_dropout)

    def forward(self, input_ids, position_ids):
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        embeddings = embeddings.transpose(0, 1).contiguous()  # [b s h] -> [s b h]
        if self.config.sequence_parallel:
            embeddings = scatter_to_sequence_parallel_region(embeddings)
            with tensor_parallel.get_cuda_rng_tracker().fork():
                embeddings = self.embedding_dropout(embeddings)
        else:
            embeddings = self.embedding_dropout(embeddings)
        return embeddings
