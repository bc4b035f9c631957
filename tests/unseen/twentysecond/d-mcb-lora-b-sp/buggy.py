"""LoRA on a row-parallel linear."""
import torch
from megatron.core.tensor_parallel import RowParallelLinear


class LoraRowParallelLinear(torch.nn.Module):
    def __init__(self, config, base_layer: RowParallelLinear, lora_a: RowParallelLinear, rank, alpha):
        super().__init__()
        self.base_layer, self.lora_a = base_layer, lora_a
        self.lora_b = torch.nn.Linear(rank, config.hidden_size, bias=False)  # BUG: sees one sequence shard, unmarked
        self.scaling = alpha / rank

    def forward(self, x):
        # with sequence parallelism both row-parallel outputs are [s/tp, b, *]
        result, bias = self.base_layer(x)
        lora, _ = self.lora_a(x)
        return result + self.lora_b(lora) * self.scaling, bias
