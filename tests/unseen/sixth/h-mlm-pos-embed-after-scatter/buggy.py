"""Word and position embeddings with reduce-scattered word embeddings."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region


class LanguageModelEmbedding(torch.nn.Module):
    def __init__(self, config, word_shard, max_sequence_length):
        super().__init__()
        self.config = config
        self.word_embeddings = torch.nn.Parameter(word_shard)  # [vocab/tp, h]
        self.word_embeddings.tensor_model_parallel = True
        self.position_embeddings = torch.nn.Embedding(max_sequence_length, config.hidden_size)  # BUG: unmarked
        self.rank = parallel_state.get_tensor_model_parallel_rank()
        self.world = parallel_state.get_tensor_model_parallel_world_size()

    def forward(self, input_ids, position_ids):
        v = self.word_embeddings.size(0)
        mask = (input_ids < self.rank * v) | (input_ids >= (self.rank + 1) * v)
        local = (input_ids - self.rank * v).masked_fill(mask, 0)
        words = torch.nn.functional.embedding(local, self.word_embeddings)
        words = words.masked_fill(mask.unsqueeze(-1), 0.0).transpose(0, 1).contiguous()
        words = reduce_scatter_to_sequence_parallel_region(words)  # [s/tp, b, h]
        n = words.size(0)
        position_ids = position_ids[:, self.rank * n:(self.rank + 1) * n]
        return words + self.position_embeddings(position_ids).transpose(0, 1)
