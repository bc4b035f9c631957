"""LoRA on a row-parallel linear: A is sharded, B is replicated."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    RowParallelLinear,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class RowParallelLoRALinear(torch.nn.Module):
    def __init__(self, to_wrap: RowParallelLinear, a_shard, out_features, dim, sequence_parallel):
        super().__init__()
        self.to_wrap = to_wrap
        self.sequence_parallel = sequence_parallel
        self.lora_a = torch.nn.Parameter(a_shard)  # [dim, in/tp]
        self.lora_a.tensor_model_parallel = True
        self.lora_b = torch.nn.Parameter(torch.zeros(out_features, dim))
        setattr(self.lora_b, "sequence_parallel", sequence_parallel)

    def forward(self, x_shard):
        out, bias = self.to_wrap(x_shard)
        mid = F.linear(x_shard, self.lora_a)
        if self.sequence_parallel:
            mid = reduce_scatter_to_sequence_parallel_region(mid)
        else:
            mid = reduce_from_tensor_model_parallel_region(mid)
        return out + F.linear(mid, self.lora_b), bias
