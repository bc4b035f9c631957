"""Embedding whose vocab-parallel lookup may already reduce-scatter the sequence."""
import torch
import torch.nn.functional as F
from megatron.core import tensor_parallel


class VocabParallelEmbedding(torch.nn.Module):
    def __init__(self, weight_shard, vocab_start_index, reduce_scatter_embeddings):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)
        self.weight.tensor_model_parallel = True
        self.start, self.reduce_scatter_embeddings = vocab_start_index, reduce_scatter_embeddings

    def forward(self, ids):
        mask = (ids < self.start) | (ids >= self.start + self.weight.size(0))
        out = F.embedding((ids - self.start).masked_fill(mask, 0), self.weight)
        out = out.masked_fill(mask.unsqueeze(-1), 0.0).transpose(0, 1).contiguous()  # [s, b, h]
        if self.reduce_scatter_embeddings:
            return tensor_parallel.reduce_scatter_to_sequence_parallel_region(out)
        return tensor_parallel.reduce_from_tensor_model_parallel_region(out)


class LanguageModelEmbedding(torch.nn.Module):
    def __init__(self, config, weight_shard, vocab_start_index, position_embedding=None):
        super().__init__()
        self.config = config
        # position embeddings need the whole sequence
        self.reduce_scatter_embeddings = position_embedding is None and config.sequence_parallel
        self.word_embeddings = VocabParallelEmbedding(
            weight_shard, vocab_start_index, self.reduce_scatter_embeddings
        )
        self.position_embedding = position_embedding

    def forward(self, ids, position_ids):
        embeddings = self.word_embeddings(ids)
        if self.position_embedding is not None:
            embeddings = embeddings + self.position_embedding(position_ids).transpose(0, 1)
        if self.config.sequence_parallel:  # BUG: scatters what word_embeddings has scattered
            embeddings = tensor_parallel.scatter_to_sequence_parallel_region(embeddings)
        return F.dropout(embeddings, self.config.hidden_dropout, self.training)
