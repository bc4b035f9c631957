"""LoRA on a Megatron row-parallel projection (no sequence parallelism)."""
import math

import torch.nn as nn
from megatron.core.tensor_parallel import RowParallelLinear, reduce_from_tensor_model_parallel_region


class LoraRowParallelLinear(nn.Module):
    def __init__(self, base_layer: RowParallelLinear, r: int, lora_alpha: int):
        super().__init__()
        self.base_layer = base_layer  # input_is_parallel=True, output all-reduced over TP
        for p in base_layer.parameters():
            p.requires_grad = False
        in_local = base_layer.input_size_per_partition
        self.lora_A = nn.Linear(in_local, r, bias=False)  # input columns of this rank
        self.lora_A.weight.tensor_model_parallel = True
        self.lora_B = nn.Linear(r, base_layer.output_size, bias=False)  # same on every rank
        self.scaling = lora_alpha / r
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        result, bias = self.base_layer(x)
        mid = self.lora_A(x)
        delta = self.lora_B(mid) * self.scaling
        return result + delta, bias  # BUG
