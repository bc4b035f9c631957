"""Own mapping module: pairs of autograd functions over small helpers, and the two layers that use them."""

# spmd: mesh dense = dp, tp
import torch
import torch.nn.functional as F
from megatron.core.parallel_state import get_tensor_model_parallel_group


def _reduce(input_, group):
    if group.size() == 1:
        return input_
    input_ = input_.contiguous()
    torch.distributed.all_reduce(input_, group=group)
    return input_


def _split_along_last_dim(input_, group):
    world_size = group.size()
    if world_size == 1:
        return input_
    chunk = input_.size(-1) // world_size
    return torch.split(input_, chunk, dim=-1)[group.rank()].contiguous()


def _gather_along_last_dim(input_, group):
    world_size = group.size()
    if world_size == 1:
        return input_
    dim_size = list(input_.size())
    dim_size[0] = dim_size[0] * world_size
    output = torch.empty(dim_size, dtype=input_.dtype, device=torch.cuda.current_device())
    torch.distributed.all_gather_into_tensor(output, input_.contiguous(), group=group)
    return torch.cat(output.chunk(world_size, dim=0), dim=-1).contiguous()


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce(grad_output, ctx.group), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def symbolic(graph, input_, group):
        return _reduce(input_, group)

    @staticmethod
    def forward(ctx, input_, group):
        return _reduce(input_, group)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return _gather_along_last_dim(input_, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _split_along_last_dim(grad_output, ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return _split_along_last_dim(input_, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather_along_last_dim(grad_output, ctx.group), None


def copy_to_region(input_, group=None):
    return _Copy.apply(input_, group if group is not None else get_tensor_model_parallel_group())


def reduce_from_region(input_, group=None):
    return _Reduce.apply(input_, group if group is not None else get_tensor_model_parallel_group())


def gather_from_region(input_, group=None):
    return _Gather.apply(input_, group if group is not None else get_tensor_model_parallel_group())


def scatter_to_region(input_, group=None):
    return _Scatter.apply(input_, group if group is not None else get_tensor_model_parallel_group())


class ColumnLinear(torch.nn.Module):
    def __init__(self, hidden, out_per_rank, gather_output=False):
        super().__init__()
        self.gather_output = gather_output
        self.weight = torch.nn.Parameter(torch.empty(out_per_rank, hidden))  # spmd: {tp: S(0)}

    # spmd: x: {tp: I} -> {tp: I if gather_output else S(-1)}
    def forward(self, x):
        out = F.linear(copy_to_region(x), self.weight)
        return gather_from_region(out) if self.gather_output else out


class RowLinear(torch.nn.Module):
    def __init__(self, in_per_rank, hidden, input_is_parallel=True):
        super().__init__()
        self.input_is_parallel = input_is_parallel
        self.weight = torch.nn.Parameter(torch.empty(hidden, in_per_rank))  # spmd: {tp: S(1)}
        self.bias = torch.nn.Parameter(torch.zeros(hidden))  # spmd: {tp: I}

    # spmd: x: {tp: S(-1) if input_is_parallel else I} -> {tp: I}
    def forward(self, x):
        if not self.input_is_parallel:
            x = scatter_to_region(x)
        return reduce_from_region(F.linear(x, self.weight)) + self.bias
