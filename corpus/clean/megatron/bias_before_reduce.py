"""A replicated bias inside the pending sum, counted once: times a flag of the first rank, or divided by the number of ranks."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class RowLinear(torch.nn.Module):
    def __init__(self, in_per_rank, hidden):
        super().__init__()
        self.tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(hidden, in_per_rank))  # spmd: {tp: S(1)}
        # The gradient of the bias is partial on every path: `finish` sums it.
        self.bias = torch.nn.Parameter(torch.zeros(hidden))  # spmd: {tp: R}

    # spmd: x: {dp: V, tp: S(-1)} -> {tp: I}
    def by_flag(self, x):
        first = float(parallel_state.get_tensor_model_parallel_rank() == 0)
        return reduce_from_tensor_model_parallel_region(F.linear(x, self.weight) + self.bias * first)

    # spmd: x: {dp: V, tp: S(-1)} -> {tp: I}
    def by_share(self, x):
        return reduce_from_tensor_model_parallel_region(F.linear(x, self.weight) + self.bias / self.tp_size)

    # spmd: x: {dp: V, tp: S(-1)} -> {tp: I}
    def by_branch(self, x):
        out = F.linear(x, self.weight)
        if parallel_state.get_tensor_model_parallel_rank() == 0:
            out = out + self.bias
        return reduce_from_tensor_model_parallel_region(out)

    def finish(self):
        if self.bias.grad is None:
            self.bias.grad = torch.zeros_like(self.bias)
        torch.distributed.all_reduce(self.bias.grad, group=parallel_state.get_tensor_model_parallel_group())


# spmd: x: {tp: S(-1)}, weight: {tp: S(1)}, bias: {tp: R} -> {tp: I}
def row_linear_by_flag(x, weight, bias):
    first = float(parallel_state.get_tensor_model_parallel_rank() == 0)
    return reduce_from_tensor_model_parallel_region(F.linear(x, weight) + bias * first)


# spmd: x: {tp: S(-1)}, weight: {tp: S(1)}, bias: {tp: R} -> {tp: I}
def row_linear_by_share(x, weight, bias):
    size = parallel_state.get_tensor_model_parallel_world_size()
    return reduce_from_tensor_model_parallel_region(F.linear(x, weight) + bias / size)
