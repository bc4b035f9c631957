"""Fused log-probabilities that use the output layer's weight directly."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    vocab_parallel_cross_entropy,
)


class FusedLMHead(torch.nn.Module):
    def __init__(self, output_layer: ColumnParallelLinear, sequence_parallel):
        super().__init__()
        self.output_layer = output_layer  # weight: [vocab/tp, hidden]
        self.sequence_parallel = sequence_parallel

    def _prepare_hidden(self, hidden_states):
        if self.sequence_parallel:
            return gather_from_sequence_parallel_region(hidden_states)
        # the same hidden states on every tensor-parallel rank
        return copy_to_tensor_model_parallel_region(hidden_states)

    def forward(self, hidden_states, labels):
        hidden_states = self._prepare_hidden(hidden_states)
        logits = F.linear(hidden_states, self.output_layer.weight)
        return -vocab_parallel_cross_entropy(logits.float(), labels)
