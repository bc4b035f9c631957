"""The same flag under other names: derived from the configuration, overridden, negated, combined with the group size."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class ColumnLinear(torch.nn.Module):
    def __init__(self, config, tp_group):
        super().__init__()
        self.sequence_parallel = config.sequence_parallel
        if self.sequence_parallel and tp_group.size() <= 1:
            self.sequence_parallel = False
        self.weight = torch.nn.Parameter(torch.empty(config.inner // tp_group.size(), config.hidden))  # spmd: {tp: S(0)}

    # spmd: x: {tp: S(0) if sequence_parallel else I} -> {tp: S(-1)}
    def forward(self, x):
        if self.sequence_parallel:
            x = gather_from_sequence_parallel_region(x)
        else:
            x = copy_to_tensor_model_parallel_region(x)
        return F.linear(x, self.weight)


class RowLinear(torch.nn.Module):
    def __init__(self, config, tp_group):
        super().__init__()
        self.sp = config.sequence_parallel
        self.weight = torch.nn.Parameter(torch.empty(config.hidden, config.inner // tp_group.size()))  # spmd: {tp: S(1)}

    # spmd: x: {tp: S(-1)} -> {tp: S(0) if sp else I}
    def forward(self, x):
        out = F.linear(x, self.weight)
        if self.sp:
            return reduce_scatter_to_sequence_parallel_region(out)
        return reduce_from_tensor_model_parallel_region(out)


class Enter(torch.nn.Module):
    def __init__(self, config, tp_group):
        super().__init__()
        self.sequence_parallel = config.sequence_parallel
        self.allreduce_dgrad = tp_group.size() > 1 and not self.sequence_parallel

    # spmd: x: {tp: S(0) if sequence_parallel else I} -> {tp: R}
    def forward(self, x):
        if self.allreduce_dgrad:
            return copy_to_tensor_model_parallel_region(x)
        return gather_from_sequence_parallel_region(x)


class Adapter(torch.nn.Module):
    def __init__(self, config, sequence_parallel=None):
        super().__init__()
        self.sequence_parallel = config.sequence_parallel if sequence_parallel is None else sequence_parallel

    # spmd: x: {tp: S(0) if sequence_parallel else I} -> {tp: R}
    def forward(self, x):
        op = gather_from_sequence_parallel_region if self.sequence_parallel else copy_to_tensor_model_parallel_region
        return op(x)


class Mode(torch.nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.sequence_parallel = mode == "split_gather"

    # spmd: x: {tp: S(0) if sequence_parallel else I} -> {tp: R}
    def forward(self, x):
        return gather_from_sequence_parallel_region(x) if self.sequence_parallel else copy_to_tensor_model_parallel_region(x)
