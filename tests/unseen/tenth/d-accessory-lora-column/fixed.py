"""LoRA on a column-parallel linear (LLaMA2-Accessory, fairscale model parallel)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from fairscale.nn.model_parallel.initialize import get_model_parallel_world_size
from fairscale.nn.model_parallel.mappings import (
    copy_to_model_parallel_region,
    gather_from_model_parallel_region,
)
from fairscale.nn.model_parallel.utils import divide_and_check_no_remainder


class LoraColumnParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, bias=True, gather_output=True, lora_rank=0):
        super().__init__()
        self.gather_output = gather_output
        self.out_per_partition = divide_and_check_no_remainder(out_features, get_model_parallel_world_size())
        self.weight = nn.Parameter(torch.empty(self.out_per_partition, in_features), requires_grad=False)
        nn.init.xavier_normal_(self.weight)
        self.bias = nn.Parameter(torch.zeros(self.out_per_partition)) if bias else None
        self.lora_a = nn.Parameter(torch.empty(lora_rank, in_features))
        nn.init.constant_(self.lora_a, 1.0 / in_features)
        self.lora_b = nn.Parameter(torch.zeros(self.out_per_partition, lora_rank))

    def forward(self, input_):
        input_parallel = copy_to_model_parallel_region(input_)
        output_parallel = F.linear(input_parallel, self.weight, self.bias)
        modification = F.linear(input_, self.lora_a)
        output_parallel = output_parallel + F.linear(copy_to_model_parallel_region(modification), self.lora_b)
        if self.gather_output:
            return gather_from_model_parallel_region(output_parallel)
        return output_parallel
