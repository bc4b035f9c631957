"""LoRA around a row-parallel linear under sequence parallelism."""
import torch
from megatron.core.tensor_parallel import RowParallelLinear, reduce_scatter_to_sequence_parallel_region


class LoraRowParallel(torch.nn.Module):
    def __init__(self, base: RowParallelLinear, a_shard, out_features, rank, config):
        super().__init__()
        assert config.sequence_parallel
        self.base = base
        self.lora_a = torch.nn.Parameter(a_shard)  # [rank, in/tp]
        self.lora_a.tensor_model_parallel = True
        self.lora_b = torch.nn.Linear(rank, out_features, bias=False)
        self.lora_b.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        # x: [s, b, in/tp]
        out, bias = self.base(x)
        mid = torch.nn.functional.linear(x, self.lora_a)
        mid = reduce_scatter_to_sequence_parallel_region(mid)
        return out + self.lora_b(mid), bias
