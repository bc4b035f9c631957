"""Low-rank adapters on tensor-parallel layers: for each kind of layer another of the two factors is split."""

# spmd: mesh dense = dp, tp
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class ColumnAdapter(nn.Module):
    """x -> A x is one computation on all ranks; B has the rows of this rank."""

    def __init__(self, in_features, out_features, rank, alpha, dropout=0.0):
        super().__init__()
        size = parallel_state.get_tensor_model_parallel_world_size()
        self.scale = alpha / rank
        self.a = nn.Parameter(torch.empty(rank, in_features))  # spmd: {tp: I}
        self.b = nn.Parameter(torch.zeros(out_features // size, rank))  # spmd: {tp: S(0)}
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    # spmd: x: {dp: V, tp: I} -> {dp: V, tp: S(-1)}
    def forward(self, x):
        low = F.linear(x, self.a)
        low = copy_to_tensor_model_parallel_region(low)
        return F.linear(low, self.b) * self.scale


class RowAdapter(nn.Module):
    """A has the columns of this rank, its product is a pending sum over the ranks; B is one computation on all ranks."""

    def __init__(self, in_features, out_features, rank, alpha, sequence_parallel=False):
        super().__init__()
        size = parallel_state.get_tensor_model_parallel_world_size()
        self.scale = alpha / rank
        self.sequence_parallel = sequence_parallel
        self.a = nn.Parameter(torch.empty(rank, in_features // size))  # spmd: {tp: S(1)}
        self.b = nn.Parameter(torch.zeros(out_features, rank))  # spmd: {tp: R if sequence_parallel else I}
        # In the sequence-parallel case B sees a part of the sequence and the finaliser sums its gradient.
        setattr(self.b, "sequence_parallel", sequence_parallel)
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    # spmd: x: {dp: V, tp: S(-1)} -> {dp: V, tp: S(0) if sequence_parallel else I}
    def forward(self, x):
        low = F.linear(x, self.a)  # spmd: {tp: P}
        if self.sequence_parallel:
            low = reduce_scatter_to_sequence_parallel_region(low)
        else:
            low = reduce_from_tensor_model_parallel_region(low)
        return F.linear(low, self.b) * self.scale


class AdaptedMLP(nn.Module):
    def __init__(self, fc1, fc2, hidden, inner, rank, sequence_parallel):
        super().__init__()
        self.fc1, self.fc2 = fc1, fc2
        self.sequence_parallel = sequence_parallel
        self.adapter1 = ColumnAdapter(hidden, inner, rank, 2 * rank)
        self.adapter2 = RowAdapter(inner, hidden, rank, 2 * rank, sequence_parallel)
        for parameter in [*fc1.parameters(), *fc2.parameters()]:
            parameter.requires_grad = False

    def forward(self, x):
        base, _ = self.fc1(x)
        if self.sequence_parallel:
            whole = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        else:
            whole = x
        hidden = F.gelu(base + self.adapter1(whole))
        out, bias = self.fc2(hidden)
        return out + self.adapter2(hidden), bias


@torch.no_grad()
def merge_row(weight, adapter):
    weight.add_(adapter.scale * (adapter.b @ adapter.a))
