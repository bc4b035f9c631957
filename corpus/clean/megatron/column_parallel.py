"""Column-parallel linear layer with the optional gather of its output."""

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region,
)


class ColumnParallelLinear(torch.nn.Module):
    def __init__(self, in_features, out_per_rank, gather_output, sequence_parallel):
        super().__init__()
        self.gather_output = gather_output
        self.sequence_parallel = sequence_parallel
        self.weight = torch.nn.Parameter(torch.empty(out_per_rank, in_features))
        self.bias = torch.nn.Parameter(torch.zeros(out_per_rank))
        for parameter in (self.weight, self.bias):
            parameter.tensor_model_parallel = True

    def forward(self, x):
        if self.sequence_parallel:
            x = gather_from_sequence_parallel_region(x)
        else:
            x = copy_to_tensor_model_parallel_region(x)
        out = F.linear(x, self.weight, self.bias)
        if self.gather_output:
            assert not self.sequence_parallel
            out = gather_from_tensor_model_parallel_region(out)
        return out
