"""The same MLP on activations that are split along the sequence, in both configurations of the flag."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class ParallelMLP(torch.nn.Module):
    def __init__(self, hidden, inner, config):
        super().__init__()
        self.config = config
        self.sequence_parallel = config.sequence_parallel
        self.w_in = torch.nn.Parameter(torch.empty(inner, hidden))  # spmd: {tp: S(0)}
        self.w_out = torch.nn.Parameter(torch.empty(hidden, inner))  # spmd: {tp: S(1)}

    # spmd: x: {tp: S(0) if sequence_parallel else I} -> {tp: S(0) if sequence_parallel else I}
    def forward(self, x):
        if self.sequence_parallel:
            x = gather_from_sequence_parallel_region(x)
        else:
            x = copy_to_tensor_model_parallel_region(x)
        inner = F.silu(F.linear(x, self.w_in))
        out = F.linear(inner, self.w_out)
        if self.config.sequence_parallel:
            return reduce_scatter_to_sequence_parallel_region(out)
        return reduce_from_tensor_model_parallel_region(out)
