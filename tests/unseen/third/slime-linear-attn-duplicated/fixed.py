"""Linear-attention layer that runs whole on every tensor-parallel rank."""
# Source: THUDM/slime pull request 1748 (confirmed from the thread)
import torch
import torch.nn as nn
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


class GatedDeltaNet(nn.Module):
    """Unsharded: each rank holds all heads."""

    def __init__(self, hf_config, delta_rule):
        super().__init__()
        self.num_heads, self.head_dim = hf_config.linear_num_heads, hf_config.linear_head_dim
        width = self.num_heads * self.head_dim
        self.in_proj = nn.Linear(hf_config.hidden_size, 3 * width + self.num_heads, bias=False)
        self.norm = nn.RMSNorm(self.head_dim)
        self.out_proj = nn.Linear(width, hf_config.hidden_size, bias=False)
        self.delta_rule = delta_rule

    def forward(self, hidden_states):
        # hidden_states: [b, s, h]
        width = self.num_heads * self.head_dim
        q, k, v, beta = self.in_proj(hidden_states).split([width, width, width, self.num_heads], dim=-1)
        q, k, v = (t.unflatten(-1, (self.num_heads, self.head_dim)) for t in (q, k, v))
        out = self.delta_rule(q, k, v, beta.sigmoid())
        return self.out_proj(self.norm(out).flatten(-2))


class HuggingfaceAttention(nn.Module):
    def __init__(self, config, hf_config, layer_number, delta_rule):
        super().__init__()
        self.config, self.layer_number = config, layer_number
        self.linear_attn = GatedDeltaNet(hf_config, delta_rule)

    def forward(self, hidden_states, attention_mask=None):
        # hidden_states: [s/tp, b, h] with sequence parallelism
        if self.config.sequence_parallel:
            hidden_states = gather_from_sequence_parallel_region(
                hidden_states, tensor_parallel_output_grad=False
            )
        output = self.linear_attn(hidden_states.transpose(0, 1)).transpose(0, 1)
        if self.config.sequence_parallel:
            output = scatter_to_sequence_parallel_region(output)
        return output, None
