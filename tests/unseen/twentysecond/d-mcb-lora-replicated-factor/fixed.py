"""LoRA on a row-parallel linear under sequence parallelism (modelscope/mcore-bridge#173)."""
import torch
from megatron.core.tensor_parallel import RowParallelLinear


class LoraRowParallelLinear(torch.nn.Module):
    def __init__(self, config, base_layer: RowParallelLinear, lora_a: RowParallelLinear, rank, scaling):
        super().__init__()
        self.base_layer = base_layer
        self.lora_a = lora_a  # [r, in/tp], reduce-scatters its output
        self.lora_b = torch.nn.Linear(rank, config.hidden_size, bias=False)
        setattr(self.lora_b.weight, "sequence_parallel", config.sequence_parallel)
        self.scaling = scaling
        torch.nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        # x: last dim sharded over TP
        result, bias = self.base_layer(x)
        mid, _ = self.lora_a(x)  # [s/tp, b, r] with sequence parallelism
        return result + self.lora_b(mid) * self.scaling, bias
