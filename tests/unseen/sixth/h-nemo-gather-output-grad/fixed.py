"""Adapter over a sequence-parallel activation: column-parallel down, row-parallel up."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class ParallelLinearAdapter(torch.nn.Module):
    def __init__(self, down_shard, up_shard, alpha, dim):
        super().__init__()
        self.linear_in = torch.nn.Parameter(down_shard)  # [dim/tp, h]
        self.linear_in.tensor_model_parallel = True
        self.linear_out = torch.nn.Parameter(up_shard)  # [h, dim/tp]
        self.linear_out.tensor_model_parallel = True
        self.scale = alpha / dim

    def forward(self, x):
        # x: [s/tp, b, h]
        x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=True)
        h = F.silu(F.linear(x, self.linear_in))
        out = F.linear(h, self.linear_out)
        return reduce_scatter_to_sequence_parallel_region(out) * self.scale
