import torch
from torch import nn
from megatron.core.tensor_parallel import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)

def attrs(w, **kw):
    for k, v in kw.items():
        setattr(w, k, v)
    return w


class RowLinear(nn.Module):
    def __init__(self, weight, size, sequence_parallel):
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.weight.tensor_model_parallel = True
        self.sequence_parallel = sequence_parallel
        self.bias = nn.Parameter(torch.zeros(size))
        attrs(self.bias, sequence_parallel=sequence_parallel)

    def forward(self, x):
        out = nn.functional.linear(x, self.weight)
        if self.sequence_parallel:
            out = reduce_scatter_to_sequence_parallel_region(out)
        else:
            out = reduce_from_tensor_model_parallel_region(out)
        return out + self.bias
