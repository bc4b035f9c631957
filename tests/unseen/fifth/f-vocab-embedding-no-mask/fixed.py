"""Vocabulary-parallel embedding."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class VocabEmbedding(torch.nn.Module):
    def __init__(self, weight_shard):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [vocab/tp, h]
        self.first = parallel_state.get_tensor_model_parallel_rank() * weight_shard.size(0)

    def forward(self, ids):
        n = self.weight.size(0)
        outside = (ids < self.first) | (ids >= self.first + n)
        local = (ids - self.first).masked_fill(outside, 0)
        out = F.embedding(local, self.weight)
        out = out.masked_fill(outside.unsqueeze(-1), 0.0)
        return reduce_from_tensor_model_parallel_region(out)
