"""Embedding cut over the vocabulary and the tied output layer.

Source: ports of Megatron's VocabParallelEmbedding (from memory). Tokens of other ranks are looked
up at row 0 of the local shard. Their rows have to be set to zero before the sum over the ranks,
otherwise each embedding gets the first row of all other shards added (and these rows get
gradients).
"""
import torch
import torch.nn.functional as F
from megatron.core.parallel_state import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class VocabParallelEmbedding(torch.nn.Module):
    def __init__(self, num_embeddings, embedding_dim, init_std=0.02):
        super().__init__()
        world = get_tensor_model_parallel_world_size()
        assert num_embeddings % world == 0
        per_rank = num_embeddings // world
        self.start = get_tensor_model_parallel_rank() * per_rank
        self.end = self.start + per_rank
        self.weight = torch.nn.Parameter(torch.empty(per_rank, embedding_dim))
        torch.nn.init.normal_(self.weight, std=init_std)

    def forward(self, tokens):
        outside = (tokens < self.start) | (tokens >= self.end)
        local_tokens = (tokens - self.start).masked_fill(outside, 0)
        embeddings = F.embedding(local_tokens, self.weight)  # BUG
        return reduce_from_tensor_model_parallel_region(embeddings)


class LanguageModel(torch.nn.Module):
    def __init__(self, vocab_size, hidden, trunk):
        super().__init__()
        self.embedding = VocabParallelEmbedding(vocab_size, hidden)
        self.trunk = trunk

    def forward(self, tokens):
        hidden = self.trunk(self.embedding(tokens))
        # logits: [b, s, vocab / tp], for the vocab-parallel cross entropy
        return F.linear(copy_to_tensor_model_parallel_region(hidden), self.embedding.weight)
