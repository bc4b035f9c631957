"""Vocab-parallel embedding: rows of other ranks are zero, the sum over the ranks has every row."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class VocabParallelEmbedding(torch.nn.Module):
    def __init__(self, vocab, hidden, reduce_scatter=False):
        super().__init__()
        rank = parallel_state.get_tensor_model_parallel_rank()
        size = parallel_state.get_tensor_model_parallel_world_size()
        self.per_rank = vocab // size
        self.first = rank * self.per_rank
        self.last = self.first + self.per_rank
        self.reduce_scatter = reduce_scatter
        self.weight = torch.nn.Parameter(torch.empty(self.per_rank, hidden))
        self.weight.tensor_model_parallel = True

    def forward(self, ids):
        outside = (ids < self.first) | (ids >= self.last)
        local = ids.clone() - self.first
        local[outside] = 0
        rows = self.weight[local]
        rows[outside, :] = 0.0
        if self.reduce_scatter:
            rows = rows.transpose(0, 1).contiguous()
            return reduce_scatter_to_sequence_parallel_region(rows)
        return reduce_from_tensor_model_parallel_region(rows)
