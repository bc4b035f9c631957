"""Attention layer taken from Hugging Face, run unsharded inside a Megatron block.

Reduced from THUDM/slime 478b807093 (fix: resolve SP/CP gradient inflation in FLA layers, #1748).
"""
import torch
from megatron.core import mpu, tensor_parallel
from megatron.core.transformer.module import MegatronModule

# spmd: mesh dense = dp, cp, tp


class HuggingfaceAttention(MegatronModule):
    """Same weights and the whole sequence on every tensor-parallel rank; sequence parallelism is on."""

    def __init__(self, config, linear_attn):
        super().__init__(config=config)
        self.linear_attn = linear_attn  # plain nn.Module, replicated over TP

    # spmd: hidden_states: {tp: S(0)} -> {tp: S(0)}
    def forward(self, hidden_states):
        hidden_states = tensor_parallel.gather_from_sequence_parallel_region(
            hidden_states,
            tensor_parallel_output_grad=False,
            group=mpu.get_tensor_model_parallel_group(),
        )

        hidden_states = hidden_states.permute(1, 0, 2)  # [b, s, h]
        output = self.linear_attn(hidden_states)
        output = output.permute(1, 0, 2)  # [s, b, h]

        output = tensor_parallel.scatter_to_sequence_parallel_region(
            output, group=mpu.get_tensor_model_parallel_group()
        )
        return output
