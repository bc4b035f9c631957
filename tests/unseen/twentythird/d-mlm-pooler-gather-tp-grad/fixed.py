"""Pooler on top of a sequence-parallel encoder."""
import torch
from megatron.core import tensor_parallel
from megatron.core.transformer.module import MegatronModule


class Pooler(MegatronModule):
    def __init__(self, config, hidden_size):
        super().__init__(config=config)
        self.dense = torch.nn.Linear(hidden_size, hidden_size)  # replicated
        self.sequence_parallel = config.sequence_parallel

    def forward(self, hidden_states, sequence_index=0):
        # hidden_states: [s/tp, b, h] with sequence parallelism
        if self.sequence_parallel:
            hidden_states = tensor_parallel.gather_from_sequence_parallel_region(
                hidden_states, tensor_parallel_output_grad=False
            )
        pooled = self.dense(hidden_states[sequence_index])
        return torch.tanh(pooled)


class Classifier(MegatronModule):
    def __init__(self, config, encoder, hidden_size, num_classes):
        super().__init__(config=config)
        self.encoder, self.pooler = encoder, Pooler(config, hidden_size)
        self.head = torch.nn.Linear(hidden_size, num_classes)  # replicated

    def forward(self, ids, labels):
        logits = self.head(self.pooler(self.encoder(ids)))
        return torch.nn.functional.cross_entropy(logits.float(), labels)
