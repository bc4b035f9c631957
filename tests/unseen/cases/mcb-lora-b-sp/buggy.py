"""LoRA on a row-parallel linear with sequence parallelism."""
import torch
from megatron.core.extensions.transformer_engine import TERowParallelLinear


class LoraRowParallelLinear(torch.nn.Module):
    def __init__(self, base_layer: TERowParallelLinear, lora_a: TERowParallelLinear, r, out_features, config):
        super().__init__()
        self.base_layer = base_layer
        self.lora_a = lora_a  # input dim sharded over TP, output reduce-scattered along the sequence
        self.lora_b = torch.nn.Linear(r, out_features, bias=False)
        self.sequence_parallel = config.sequence_parallel
        self.scaling = 2.0
        # BUG: lora_b is replicated, sees a sequence shard and has no sequence_parallel mark

    def forward(self, x):
        result, bias = self.base_layer(x)
        mid, _ = self.lora_a(x)
        return result + self.lora_b(mid) * self.scaling, bias
