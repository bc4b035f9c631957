"""Log-probabilities from a language-model head applied chunk by chunk."""
import torch
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    gather_from_sequence_parallel_region,
    vocab_parallel_cross_entropy,
)


class FusedLMHead(torch.nn.Module):
    def __init__(self, output_layer: ColumnParallelLinear, chunk_size):
        super().__init__()
        self.output_layer, self.chunk_size = output_layer, chunk_size

    def forward(self, hidden_states, labels):
        # hidden_states: [s, b, h], or [s/tp, b, h] with sequence parallelism
        weight = self.output_layer.weight  # [vocab/tp, h]
        if self.output_layer.sequence_parallel:
            hidden_states = gather_from_sequence_parallel_region(hidden_states)
        losses = []
        for h, y in zip(hidden_states.split(self.chunk_size), labels.split(self.chunk_size)):
            logits = torch.matmul(h, weight.t())  # BUG: without SP the gradient of h is partial over TP
            losses.append(vocab_parallel_cross_entropy(logits, y))
        return -torch.cat(losses)
