"""LoRA on a row-parallel projection."""
import torch
from torch import nn
from megatron.core.tensor_parallel import RowParallelLinear


class LoraRowParallelLinear(nn.Module):
    def __init__(self, base_layer: RowParallelLinear, config, r, lora_alpha, init_method):
        super().__init__()
        self.base_layer = base_layer
        self.scaling = lora_alpha / r
        for p in base_layer.parameters():
            p.requires_grad = False
        self.lora_A = RowParallelLinear(
            base_layer.input_size,
            r,
            config=config,
            init_method=init_method,
            bias=False,
            input_is_parallel=True,
            skip_bias_add=False,
        )
        self.lora_B = nn.Linear(r, base_layer.output_size, bias=False)  # BUG: sees one sequence shard under SP, unmarked
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        result, bias = self.base_layer(x)
        low_rank, _ = self.lora_A(x)  # [s/tp, b, r] with sequence parallelism
        return result + self.lora_B(low_rank) * self.scaling, bias
