# slime, pull 1748: the Hugging Face linear attention is computed in duplicate on all TP ranks, so the backward of the
# gather before it has to split; a reduce-scatter adds up TP equal gradients.
"""Hugging Face attention layer inside a Megatron model with sequence parallelism."""
from abc import ABC, abstractmethod

from megatron.core import mpu, tensor_parallel
from megatron.core.transformer.module import MegatronModule


class HuggingfaceAttention(MegatronModule, ABC):
    def __init__(self, args, config, layer_number: int):
        super().__init__(config=config)
        self.args = args
        self.hf_layer_idx = layer_number - 1

    def forward(self, hidden_states, packed_seq_params=None):
        if self.args.sequence_parallel:
            # not sharded below: each TP rank holds the full weights and computes the full output
            hidden_states = tensor_parallel.gather_from_sequence_parallel_region(
                hidden_states, group=mpu.get_tensor_model_parallel_group()  # BUG: backward reduce-scatters copies
            )
        hidden_states = hidden_states.permute(1, 0, 2)  # [bsz, seq_len, hidden_dim]
        output = self.hf_forward(hidden_states, packed_seq_params)
        output = output.permute(1, 0, 2)  # [seq_len, bsz, hidden_dim]
        if self.args.sequence_parallel:
            output = tensor_parallel.scatter_to_sequence_parallel_region(
                output, group=mpu.get_tensor_model_parallel_group()
            )
        return output, None

    @abstractmethod
    def hf_forward(self, hidden_states, packed_seq_params):
        """Huggingface forward function"""
