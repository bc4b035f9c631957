"""A tensor-parallel block in the style of Megatron. It was written for sequence parallelism; without it, a gradient is lost."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class ParallelBlock(torch.nn.Module):
    def __init__(self, hidden: int, inner: int, sequence_parallel: bool):
        super().__init__()
        self.sequence_parallel = sequence_parallel
        self.w_proj = torch.nn.Parameter(torch.empty(hidden, inner))  # spmd: {tp: S(1)}
        self.w_in = torch.nn.Parameter(torch.empty(inner, hidden))  # spmd: {tp: S(0)}
        self.w_out = torch.nn.Parameter(torch.empty(hidden, inner))  # spmd: {tp: S(1)}

    def forward(self, heads):
        out = F.linear(heads, self.w_proj)  # spmd: {tp: P}
        if self.sequence_parallel:
            x = reduce_scatter_to_sequence_parallel_region(out)
            x = gather_from_sequence_parallel_region(x)
        else:
            x = reduce_from_tensor_model_parallel_region(out)
        inner = F.gelu(F.linear(x, self.w_in))
        out = F.linear(inner, self.w_out)  # spmd: {tp: P}
        return reduce_from_tensor_model_parallel_region(out)
