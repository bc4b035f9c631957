# LoRA around a Megatron row-parallel linear (attention output, mlp fc2).
import torch
import torch.nn as nn
from megatron.core.tensor_parallel import RowParallelLinear


class LoraRowParallelLinear(nn.Module):
    def __init__(self, base_layer: RowParallelLinear, config, r, lora_alpha, init_method):
        super().__init__()
        self.base_layer = base_layer
        for p in base_layer.parameters():
            p.requires_grad_(False)
        self.lora_A = RowParallelLinear(
            base_layer.input_size,
            r,
            config=config,
            init_method=init_method,
            bias=False,
            input_is_parallel=True,
            skip_bias_add=True,
        )
        self.lora_B = nn.Linear(r, base_layer.output_size, bias=False, dtype=config.params_dtype)
        nn.init.zeros_(self.lora_B.weight)
        setattr(self.lora_B.weight, "sequence_parallel", config.sequence_parallel)
        self.scaling = lora_alpha / r

    def forward(self, x):
        out, bias = self.base_layer(x)
        # with config.sequence_parallel both row-parallel outputs are [s / tp, b, *]
        low, _ = self.lora_A(x)
        return out + self.lora_B(low) * self.scaling, bias
