"""Column-parallel linear."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region,
)


class ColumnParallelLinear(torch.nn.Module):
    def __init__(self, weight_shard, sequence_parallel, gather_output=False):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [out/tp, in]
        self.weight.tensor_model_parallel = True
        self.sequence_parallel, self.gather_output = sequence_parallel, gather_output

    def forward(self, input_):
        if self.sequence_parallel:
            input_parallel = gather_from_sequence_parallel_region(input_)
        else:
            input_parallel = copy_to_tensor_model_parallel_region(input_)
        output = F.linear(input_parallel, self.weight)
        return gather_from_tensor_model_parallel_region(output) if self.gather_output else output
