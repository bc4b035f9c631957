"""BERT pooler and binary head on sequence-parallel hidden states."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.module import MegatronModule


class Pooler(MegatronModule):
    """The dense layer is replicated: each tensor-parallel rank pools the same token."""

    def __init__(self, config, hidden_size):
        super().__init__(config=config)
        self.dense = torch.nn.Linear(hidden_size, hidden_size)
        self.sequence_parallel = config.sequence_parallel

    def forward(self, hidden_states, sequence_index=0):
        # [s/tp, b, h] with sequence parallelism, otherwise [s, b, h]
        if self.sequence_parallel:
            hidden_states = gather_from_sequence_parallel_region(hidden_states)  # BUG: backward sums tp equal gradients
        return torch.tanh(self.dense(hidden_states[sequence_index]))


class BinaryHead(MegatronModule):
    def __init__(self, config, hidden_size):
        super().__init__(config=config)
        self.pooler = Pooler(config, hidden_size)
        self.head = torch.nn.Linear(hidden_size, 2)

    def forward(self, hidden_states, is_random):
        return F.cross_entropy(self.head(self.pooler(hidden_states)).float(), is_random)
