"""Vocabulary-parallel lookup with declared ids: comparisons and index arithmetic on ids have no gradient."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class VocabParallelEmbedding(torch.nn.Module):
    def __init__(self, vocab, hidden, max_positions):
        super().__init__()
        size = parallel_state.get_tensor_model_parallel_world_size()
        self.per_rank = vocab // size
        self.first = parallel_state.get_tensor_model_parallel_rank() * self.per_rank
        self.last = self.first + self.per_rank
        self.weight = torch.nn.Parameter(torch.empty(self.per_rank, hidden))  # spmd: {tp: S(0)}
        self.positions = torch.nn.Parameter(torch.empty(max_positions, hidden))  # spmd: {tp: I}

    # spmd: ids: {dp: V, tp: I}, position_ids: {dp: V, tp: I} -> {dp: V, tp: I}
    def forward(self, ids, position_ids):
        outside = (ids < self.first) | (ids >= self.last)
        local = (ids - self.first).masked_fill(outside, 0)
        rows = F.embedding(local, self.weight)
        rows = rows.masked_fill(outside.unsqueeze(-1), 0.0)
        words = reduce_from_tensor_model_parallel_region(rows)
        return words + F.embedding(position_ids, self.positions)


# spmd: logits: {dp: V, tp: S(-1)}, labels: {dp: V, tp: I} -> {dp: V, tp: I}
def log_probability(logits, labels, per_rank: int):
    group = parallel_state.get_tensor_model_parallel_group()
    largest = logits.detach().amax(dim=-1, keepdim=True)
    torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=group)
    shifted = logits - largest
    total = reduce_from_tensor_model_parallel_region(shifted.exp().sum(dim=-1))
    first = parallel_state.get_tensor_model_parallel_rank() * per_rank
    outside = torch.logical_or(labels < first, labels >= first + per_rank)
    local = torch.where(outside, 0, labels - first)
    picked = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1)
    picked = reduce_from_tensor_model_parallel_region(torch.where(outside, 0.0, picked))
    return picked - total.log()
