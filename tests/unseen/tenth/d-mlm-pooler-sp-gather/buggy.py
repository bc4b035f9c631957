"""BERT pooler on top of a sequence-parallel encoder (Megatron-LM language_model)."""
import torch
from megatron.core import tensor_parallel


class Pooler(torch.nn.Module):
    """Takes the hidden state of one token; every tensor-parallel rank computes the same thing."""

    def __init__(self, hidden_size, init_method, sequence_parallel):
        super().__init__()
        self.dense = torch.nn.Linear(hidden_size, hidden_size)
        init_method(self.dense.weight)
        torch.nn.init.zeros_(self.dense.bias)
        self.sequence_parallel = sequence_parallel

    def forward(self, hidden_states, sequence_index=0):
        # hidden_states: [s/tp, b, h]
        if self.sequence_parallel:
            hidden_states = tensor_parallel.gather_from_sequence_parallel_region(
                hidden_states  # BUG: reduce-scatter in backward adds up tp equal gradients
            )
        pooled = hidden_states[sequence_index, :, :]
        return torch.tanh(self.dense(pooled))


class BertBinaryHead(torch.nn.Module):
    def __init__(self, pooler, hidden_size):
        super().__init__()
        self.pooler = pooler
        self.binary_head = torch.nn.Linear(hidden_size, 2)

    def forward(self, encoder_output, is_random):
        logits = self.binary_head(self.pooler(encoder_output))
        return torch.nn.functional.cross_entropy(logits.float(), is_random)
