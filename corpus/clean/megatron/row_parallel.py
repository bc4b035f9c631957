"""Row-parallel linear layer: the bias is added once, after the reduction, and marked when its gradient is partial."""

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
    scatter_to_tensor_model_parallel_region,
)


class RowParallelLinear(torch.nn.Module):
    def __init__(self, in_per_rank, out_features, input_is_parallel, sequence_parallel, skip_bias_add):
        super().__init__()
        self.input_is_parallel = input_is_parallel
        self.sequence_parallel = sequence_parallel
        self.skip_bias_add = skip_bias_add
        if sequence_parallel and not input_is_parallel:
            raise RuntimeError("sequence parallelism needs a parallel input")
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_per_rank))
        self.weight.tensor_model_parallel = True
        self.bias = torch.nn.Parameter(torch.zeros(out_features))
        setattr(self.bias, "sequence_parallel", sequence_parallel)

    def forward(self, x):
        if not self.input_is_parallel:
            x = scatter_to_tensor_model_parallel_region(x)
        out = F.linear(x, self.weight)
        if self.sequence_parallel:
            out = reduce_scatter_to_sequence_parallel_region(out)
        else:
            out = reduce_from_tensor_model_parallel_region(out)
        if self.skip_bias_add:
            return out, self.bias
        return out + self.bias, None
