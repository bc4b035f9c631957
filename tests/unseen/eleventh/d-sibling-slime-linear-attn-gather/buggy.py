"""Linear attention from Hugging Face inside a Megatron layer: every TP rank computes all of it."""
import torch
from megatron.core import tensor_parallel
from megatron.core.transformer.module import MegatronModule

# spmd: mesh dense = dp, cp, tp


class HuggingfaceAttention(MegatronModule):
    def __init__(self, config, linear_attn: torch.nn.Module, input_layernorm: torch.nn.Module):
        super().__init__(config=config)
        self.linear_attn = linear_attn  # replicated, not tensor parallel
        self.input_layernorm = input_layernorm

    # spmd: hidden_states: {tp: S(0)} -> {tp: S(0)}
    def forward(self, hidden_states):
        full = tensor_parallel.gather_from_sequence_parallel_region(hidden_states)  # spmd: {tp: I}  # BUG: sums tp equal gradients
        full = self.input_layernorm(full).permute(1, 0, 2)
        out = self.linear_attn(full).permute(1, 0, 2).contiguous()
        return tensor_parallel.scatter_to_sequence_parallel_region(out)
