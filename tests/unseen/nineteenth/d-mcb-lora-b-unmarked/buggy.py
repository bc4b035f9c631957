"""LoRA around a row-parallel projection. modelscope/mcore-bridge, pull request #173."""
import math

import torch
from megatron.core.tensor_parallel import RowParallelLinear


class LoraRowParallelLinear(torch.nn.Module):
    """Adapter for linear_proj and linear_fc2."""

    def __init__(self, base: RowParallelLinear, config, in_features, out_features, r, lora_alpha):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.scaling = lora_alpha / r
        self.lora_A = RowParallelLinear(
            in_features,
            r,
            config=config,
            init_method=lambda w: torch.nn.init.kaiming_uniform_(w, a=math.sqrt(5)),
            bias=False,
            input_is_parallel=True,
            skip_bias_add=False,
        )
        self.lora_B = torch.nn.Linear(r, out_features, bias=False)  # BUG: sees a sequence shard, unmarked
        torch.nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        # x: [s, b, in / tp]
        out, bias = self.base(x)
        hidden, _ = self.lora_A(x)
        return out + self.lora_B(hidden) * self.scaling, bias


def apply_lora(layer, config, r=16, lora_alpha=32):
    attn, mlp = layer.self_attention, layer.mlp
    attn.linear_proj = LoraRowParallelLinear(
        attn.linear_proj, config, config.hidden_size, config.hidden_size, r, lora_alpha
    )
    mlp.linear_fc2 = LoraRowParallelLinear(
        mlp.linear_fc2, config, config.ffn_hidden_size, config.hidden_size, r, lora_alpha
    )
    return layer
