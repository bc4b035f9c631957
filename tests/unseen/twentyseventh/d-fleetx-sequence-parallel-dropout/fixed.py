"""Embedding of a GPT model with tensor and sequence parallelism."""
import torch
from torch import nn
from megatron.core import tensor_parallel
from megatron.core.tensor_parallel import VocabParallelEmbedding


def init_seeds(seed):
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


class GPTEmbedding(nn.Module):
    def __init__(self, config, vocab_size, max_sequence_length):
        super().__init__()
        self.sequence_parallel = config.sequence_parallel
        self.word_embeddings = VocabParallelEmbedding(
            vocab_size, config.hidden_size, init_method=config.init_method, config=config
        )
        self.position_embeddings = nn.Embedding(max_sequence_length, config.hidden_size)
        self.embedding_dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, input_ids, position_ids):
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        embeddings = embeddings.transpose(0, 1).contiguous()  # [s, b, h]
        if self.sequence_parallel:
            embeddings = tensor_parallel.scatter_to_sequence_parallel_region(embeddings)
            with tensor_parallel.get_cuda_rng_tracker().fork():
                return self.embedding_dropout(embeddings)
        return self.embedding_dropout(embeddings)
