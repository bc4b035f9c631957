"""Hugging Face attention module inside a Megatron layer, not sharded over TP.
THUDM/slime #1748, "resolve SP/CP gradient inflation in FLA (linear attention) layers".
"""
from abc import ABC, abstractmethod

from megatron.core import mpu, tensor_parallel
from megatron.core.transformer.module import MegatronModule


class HuggingfaceAttention(MegatronModule, ABC):
    def __init__(self, args, config, layer_number: int):
        super().__init__(config=config)
        self.args = args
        self.layer_number = layer_number
        self.hf_layer_idx = layer_number - 1

    def forward(self, hidden_states, attention_mask=None, packed_seq_params=None):
        assert packed_seq_params is not None
        tp_group = mpu.get_tensor_model_parallel_group()
        if self.args.sequence_parallel:
            hidden_states = tensor_parallel.gather_from_sequence_parallel_region(
                hidden_states, tensor_parallel_output_grad=False, group=tp_group
            )

        hidden_states = hidden_states.permute(1, 0, 2)  # [b, s, h]
        output = self.hf_forward(hidden_states, packed_seq_params)
        output = output.permute(1, 0, 2)  # [s, b, h]

        if self.args.sequence_parallel:
            output = tensor_parallel.scatter_to_sequence_parallel_region(output, group=tp_group)
        return output, None

    @abstractmethod
    def hf_forward(self, hidden_states, packed_seq_params):
        """Every TP rank holds the whole weights."""
