"""LoRA branch beside a row-parallel linear."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    RowParallelLinear,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class LoraRowParallelLinear(torch.nn.Module):
    def __init__(self, base: RowParallelLinear, config, in_per_partition, out_features, rank, alpha):
        super().__init__()
        self.base = base
        self.scaling = alpha / rank
        self.sequence_parallel = config.sequence_parallel
        self.lora_a = torch.nn.Parameter(torch.empty(rank, in_per_partition))
        setattr(self.lora_a, "tensor_model_parallel", True)
        torch.nn.init.kaiming_uniform_(self.lora_a)
        self.lora_b = torch.nn.Parameter(torch.zeros(out_features, rank))
        setattr(self.lora_b, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        # x: [s, b, in/tp]
        out, bias = self.base(x)
        mid = F.linear(x, self.lora_a)
        if self.sequence_parallel:
            mid = reduce_scatter_to_sequence_parallel_region(mid)
        else:
            mid = reduce_from_tensor_model_parallel_region(mid)
        return out + self.scaling * F.linear(mid, self.lora_b), bias
