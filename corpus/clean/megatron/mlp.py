"""Tensor-parallel MLP: column-parallel, activation, row-parallel."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class ParallelMLP(torch.nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.w_in = torch.nn.Parameter(torch.empty(inner, hidden))  # spmd: {tp: S(0)}
        self.b_in = torch.nn.Parameter(torch.zeros(inner))  # spmd: {tp: S(0)}
        self.w_out = torch.nn.Parameter(torch.empty(hidden, inner))  # spmd: {tp: S(1)}
        self.b_out = torch.nn.Parameter(torch.zeros(hidden))  # spmd: {tp: I}

    # spmd: x: {dp: V, tp: I} -> {dp: V, tp: I}
    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        inner = F.gelu(F.linear(x, self.w_in, self.b_in))
        out = F.linear(inner, self.w_out)
        return reduce_from_tensor_model_parallel_region(out) + self.b_out
