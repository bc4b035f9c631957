# NVIDIA/Megatron-LM commit 8474e6e5 (fix for sequence parallelism in bert pooling)
# The pooler gathers the sequence and computes the same thing on every rank; the backward of the gather
# reduce-scatters these equal gradients, so what flows into the encoder is tp_size times too large.
"""Pooler of a sequence-parallel BERT encoder."""
import torch
from torch import nn
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region


class Pooler(nn.Module):
    """Pool hidden states of one token (for example the start of the sequence), add a bias and tanh."""

    def __init__(self, hidden_size, sequence_parallel):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)  # same weights on all tensor-parallel ranks
        self.sequence_parallel = sequence_parallel

    def forward(self, hidden_states, sequence_index=0):
        # hidden_states: [s, b, h], or [s / tp, b, h] with sequence parallelism
        if self.sequence_parallel:
            hidden_states = gather_from_sequence_parallel_region(hidden_states)  # BUG
        pooled = hidden_states[sequence_index, :, :]
        return torch.tanh(self.dense(pooled))


class BertSentenceClassifier(nn.Module):
    def __init__(self, encoder, hidden_size, sequence_parallel):
        super().__init__()
        self.encoder = encoder
        self.pooler = Pooler(hidden_size, sequence_parallel)
        self.binary_head = nn.Linear(hidden_size, 2)  # same weights on all tensor-parallel ranks

    def forward(self, tokens, labels):
        pooled = self.pooler(self.encoder(tokens))
        return nn.functional.cross_entropy(self.binary_head(pooled), labels)
