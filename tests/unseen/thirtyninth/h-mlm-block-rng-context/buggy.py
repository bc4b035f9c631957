"""Stack of transformer layers on sequence shards."""
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn
from megatron.core import tensor_parallel


class TransformerLayer(nn.Module):
    def __init__(self, config, attention, mlp, norm_cls):
        super().__init__()
        self.attention, self.mlp, self.p = attention, mlp, config.hidden_dropout
        self.input_norm, self.mlp_norm = norm_cls(config), norm_cls(config)
        for norm in (self.input_norm, self.mlp_norm):
            for param in norm.parameters():
                setattr(param, "sequence_parallel", config.sequence_parallel)

    def bias_dropout_add(self, out_with_bias, residual):
        out, bias = out_with_bias
        if bias is not None:
            out = out + bias
        return residual + F.dropout(out, self.p, training=self.training)

    def forward(self, hidden_states, attention_mask):
        # [s / tp, b, h] with sequence parallelism
        out = self.attention(self.input_norm(hidden_states), attention_mask)
        hidden_states = self.bias_dropout_add(out, hidden_states)
        out = self.mlp(self.mlp_norm(hidden_states))
        return self.bias_dropout_add(out, hidden_states)


class TransformerBlock(nn.Module):
    def __init__(self, config, layers):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(layers)

    def _fp8_context(self):
        if not self.config.fp8:
            return nullcontext()
        import transformer_engine.pytorch as te

        return te.fp8_autocast(enabled=True, fp8_recipe=self.config.fp8_recipe)

    def forward(self, hidden_states, attention_mask):
        if self.config.sequence_parallel:
            rng_context = tensor_parallel.get_cuda_rng_tracker().fork()
        else:
            rng_context = nullcontext()
        fp8_context = self._fp8_context()

        with rng_context and fp8_context:  # BUG
            for layer in self.layers:
                hidden_states = layer(hidden_states, attention_mask)
        return hidden_states
