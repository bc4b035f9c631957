"""Logits of the tied output layer (vocabulary-parallel weight)."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region,
)


class ParallelLMHead(torch.nn.Module):
    def __init__(self, embedding_shard, sequence_parallel, parallel_output=True):
        super().__init__()
        self.weight = torch.nn.Parameter(embedding_shard)  # [vocab/tp, h]
        self.weight.tensor_model_parallel = True
        self.sequence_parallel = sequence_parallel
        self.parallel_output = parallel_output

    def forward(self, hidden):
        # without sequence parallelism hidden is the same on every TP rank
        model_parallel = parallel_state.get_tensor_model_parallel_world_size() > 1
        if model_parallel and self.sequence_parallel:
            input_parallel = gather_from_sequence_parallel_region(hidden)
        else:
            input_parallel = copy_to_tensor_model_parallel_region(hidden)
        logits_parallel = F.linear(input_parallel, self.weight)
        if self.parallel_output:
            return logits_parallel
        return gather_from_tensor_model_parallel_region(logits_parallel)
