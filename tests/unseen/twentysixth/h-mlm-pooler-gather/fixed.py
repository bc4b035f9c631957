# Megatron-LM / Megatron-DeepSpeed 8474e6e5
"""BERT pooler and binary head behind a sequence-parallel encoder."""
import torch
from megatron.core import tensor_parallel


class Pooler(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        # the same pooler runs on every tensor-parallel rank
        self.dense = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.sequence_parallel = config.sequence_parallel

    def forward(self, hidden_states, sequence_index=0):
        # hidden_states: [s / tp, b, h]
        if self.sequence_parallel:
            hidden_states = tensor_parallel.gather_from_sequence_parallel_region(
                hidden_states, tensor_parallel_output_grad=False
            )
        pooled = self.dense(hidden_states[sequence_index])
        return torch.tanh(pooled)


class BertBinaryHead(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.pooler = Pooler(config)
        self.binary_head = torch.nn.Linear(config.hidden_size, 2)

    def forward(self, hidden_states, labels):
        logits = self.binary_head(self.pooler(hidden_states))
        return torch.nn.functional.cross_entropy(logits.float(), labels)
