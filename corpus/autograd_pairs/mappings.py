"""Mapping functions of a tensor-parallel layer, in the idiom of a module of helpers and pairs. Each is right as it stands.

`tests/autograd_mutations.rs` drops or exchanges the collective of every backward and expects a report.
"""

import torch
import torch.distributed as dist

from megatron.core.parallel_state import get_tensor_model_parallel_group

gather_into = dist.all_gather_into_tensor
scatter_from = dist.reduce_scatter_tensor


def _reduce(tensor, group):
    """Sums over the ranks, in place."""
    if group.size() == 1:
        return tensor
    tensor = tensor.contiguous()
    dist.all_reduce(tensor, group=group)
    return tensor


def _keep(tensor, group):
    return tensor


def _split_last(tensor, group):
    """The rank's own columns."""
    if group.size() == 1:
        return tensor
    parts = torch.split(tensor, tensor.size(-1) // group.size(), dim=-1)
    return parts[group.rank()].contiguous()


def _split_first(tensor, group):
    """The rank's own rows."""
    if group.size() == 1:
        return tensor
    rows = tensor.size(0) // group.size()
    start = group.rank() * rows
    return tensor[start : start + rows].contiguous()


def _gather_last(tensor, group):
    """The columns of all ranks, side by side."""
    if group.size() == 1:
        return tensor
    sizes = list(tensor.size())
    sizes[0] = sizes[0] * group.size()
    joined = torch.empty(sizes, dtype=tensor.dtype, device=tensor.device)
    gather_into(joined, tensor.contiguous(), group=group)
    return torch.cat(joined.chunk(group.size(), dim=0), dim=-1).contiguous()


def _gather_first(tensor, group):
    """The rows of all ranks, one below the other."""
    if group.size() == 1:
        return tensor
    sizes = list(tensor.size())
    sizes[0] = sizes[0] * group.size()
    joined = torch.empty(sizes, dtype=tensor.dtype, device=tensor.device)
    gather_into(joined, tensor.contiguous(), group=group)
    return joined


def _reduce_scatter_first(tensor, group):
    """The rank's own rows of the sum."""
    if group.size() == 1:
        return tensor
    sizes = list(tensor.size())
    sizes[0] = sizes[0] // group.size()
    own = torch.empty(sizes, dtype=tensor.dtype, device=tensor.device)
    scatter_from(own, tensor.contiguous(), group=group)
    return own


def _reduce_scatter_last(tensor, group):
    """The rank's own columns of the sum."""
    if group.size() == 1:
        return tensor
    stacked = torch.cat(torch.split(tensor, tensor.size(-1) // group.size(), dim=-1), dim=0)
    return _reduce_scatter_first(stacked, group)


def _exchange(tensor, group):
    """Rows for every rank, rows from every rank."""
    if group.size() == 1:
        return tensor
    received = torch.empty_like(tensor)
    dist.all_to_all_single(received, tensor.contiguous(), group=group)
    return received


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _keep(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _reduce(grad, ctx.group), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _reduce(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _keep(grad, ctx.group), None


class _ScatterColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _split_last(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _gather_last(grad, ctx.group), None


class _GatherColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _gather_last(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _split_last(grad, ctx.group), None


class _ScatterRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _split_first(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _gather_first(grad, ctx.group), None


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _gather_first(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _reduce_scatter_first(grad, ctx.group), None


class _GatherRowsAlike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _gather_first(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _split_first(grad, ctx.group), None


class _ReduceScatterRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _reduce_scatter_first(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _gather_first(grad, ctx.group), None


class _GatherColumnsApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _gather_last(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _reduce_scatter_last(grad, ctx.group), None


class _ReduceScatterColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _reduce_scatter_last(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _gather_last(grad, ctx.group), None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _exchange(x, group)

    @staticmethod
    def backward(ctx, grad):
        return _exchange(grad, ctx.group), None


# spmd: x: {tp: I} -> {tp: R}
def copy_to_region(x):
    return _Copy.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: P} -> {tp: I}
def reduce_from_region(x):
    return _Reduce.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: I} -> {tp: S(-1)}
def scatter_columns(x):
    return _ScatterColumns.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: S(-1)} -> {tp: I}
def gather_columns(x):
    return _GatherColumns.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: I} -> {tp: S(0)}
def scatter_rows(x):
    return _ScatterRows.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: S(0)} -> {tp: R}
def gather_rows(x):
    return _GatherRows.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: S(0)} -> {tp: I}
def gather_rows_alike(x):
    return _GatherRowsAlike.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: P} -> {tp: S(0)}
def reduce_scatter_rows(x):
    return _ReduceScatterRows.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: S(-1)} -> {tp: R}
def gather_columns_apart(x):
    return _GatherColumnsApart.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: P} -> {tp: S(-1)}
def reduce_scatter_columns(x):
    return _ReduceScatterColumns.apply(x, get_tensor_model_parallel_group())


# spmd: x: {tp: S(0)} -> {tp: S(0)}
def exchange(x):
    return _Exchange.apply(x, get_tensor_model_parallel_group())
