"""Word embeddings are partial until the reduce-scatter; positions are added to this rank's part after it."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


class Embedding(torch.nn.Module):
    def __init__(self, vocab, hidden, positions, sequence_parallel):
        super().__init__()
        n = parallel_state.get_tensor_model_parallel_world_size()
        self.part = vocab // n
        self.start = parallel_state.get_tensor_model_parallel_rank() * self.part
        self.weight = torch.nn.Parameter(torch.empty(self.part, hidden))
        self.weight.tensor_model_parallel = True
        self.position = torch.nn.Parameter(torch.empty(positions, hidden))
        self.sequence_parallel = sequence_parallel

    def words(self, ids):
        outside = (ids < self.start) | (ids >= self.start + self.part)
        out = F.embedding((ids - self.start).masked_fill(outside, 0), self.weight)
        return out.masked_fill(outside[..., None], 0.0)

    def forward(self, ids, position_ids):
        x = self.words(ids).transpose(0, 1).contiguous()
        pos = F.embedding(position_ids, self.position).transpose(0, 1).contiguous()
        if self.sequence_parallel:
            x = reduce_scatter_to_sequence_parallel_region(x)
            # the scatter gathers in its backward: the gradient of the table is whole on each rank
            return x + scatter_to_sequence_parallel_region(pos)
        return reduce_from_tensor_model_parallel_region(x) + pos
