"""Transformer block: contexts around the layers.

Source: NVIDIA/Megatron-LM, issue #1256. With sequence parallelism the layers run under the
tensor-parallel RNG state, so that the dropout masks of the sequence shards differ. The two
contexts are joined with `and`, which yields the second one only: the fork is never entered and
all tensor ranks draw the same mask for different tokens.
"""
from contextlib import nullcontext

import torch
from megatron.core import tensor_parallel


class Layer(torch.nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.input_norm = torch.nn.LayerNorm(config.hidden_size)
        self.mlp_norm = torch.nn.LayerNorm(config.hidden_size)
        for p in [*self.input_norm.parameters(), *self.mlp_norm.parameters()]:
            p.sequence_parallel = config.sequence_parallel
        self.attention, self.mlp = attention, mlp
        self.dropout = torch.nn.Dropout(config.hidden_dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.input_norm(x)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class TransformerBlock(torch.nn.Module):
    def __init__(self, config, layers):
        super().__init__()
        self.config, self.layers = config, torch.nn.ModuleList(layers)

    def forward(self, hidden_states):
        # hidden_states: [s, b, h]; the slice of s of this tensor rank with sequence_parallel
        if self.config.sequence_parallel:
            rng_context = tensor_parallel.get_cuda_rng_tracker().fork()
        else:
            rng_context = nullcontext()

        if self.config.fp8:
            import transformer_engine.pytorch as te

            fp8_context = te.fp8_autocast(enabled=True)
        else:
            fp8_context = nullcontext()

        with rng_context and fp8_context:  # BUG
            for layer in self.layers:
                hidden_states = layer(hidden_states)
        return hidden_states
