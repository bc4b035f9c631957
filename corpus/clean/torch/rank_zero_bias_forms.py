"""Ways to count a bias once in a sum over the ranks: on rank 0 only, times a rank flag, divided by the size, added behind the sum."""

# spmd: mesh model = tp
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


class AllReduce(torch.autograd.Function):
    """Sum in the forward pass; the gradient of the sum is equal on all ranks and passes through."""

    @staticmethod
    def forward(ctx, x, group):
        out = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class RowLinear(nn.Module):
    def __init__(self, in_per_rank, out_features, form):
        super().__init__()
        self.group = mesh.get_group("tp")
        self.rank = dist.get_rank(self.group)
        self.size = dist.get_world_size(self.group)
        self.form = form
        self.weight = nn.Parameter(torch.empty(out_features, in_per_rank))  # spmd: {tp: S(1)}
        self.bias = nn.Parameter(torch.zeros(out_features))  # spmd: {tp: R}

    # spmd: x: {tp: S(-1)} -> {tp: I}
    def forward(self, x):
        partial = F.linear(x, self.weight)
        if self.form == "branch":
            if self.rank == 0:
                partial = partial + self.bias
            return AllReduce.apply(partial, self.group)
        if self.form == "product":
            return AllReduce.apply(partial + self.bias * float(self.rank == 0), self.group)
        if self.form == "argument":
            out = F.linear(x, self.weight, self.bias if self.rank == 0 else None)
            return AllReduce.apply(out, self.group)
        if self.form == "share":
            return AllReduce.apply(partial + self.bias / self.size, self.group)
        raise ValueError(self.form)


def sum_bias_gradients(model):
    """The shares of the gradient of a bias that is inside the sum: rank 0 has all of it, or every rank has an equal part."""
    for module in model.modules():
        if isinstance(module, RowLinear):
            if module.bias.grad is None:
                module.bias.grad = torch.zeros_like(module.bias)
            dist.all_reduce(module.bias.grad, group=module.group)


class RowLinearAfter(nn.Module):
    def __init__(self, in_per_rank, out_features):
        super().__init__()
        self.group = mesh.get_group("tp")
        self.weight = nn.Parameter(torch.empty(out_features, in_per_rank))  # spmd: {tp: S(1)}
        self.bias = nn.Parameter(torch.zeros(out_features))  # spmd: {tp: I}

    # spmd: x: {tp: S(-1)} -> {tp: I}
    def forward(self, x):
        return AllReduce.apply(F.linear(x, self.weight), self.group) + self.bias


# spmd: x: {tp: S(-1)}, weight: {tp: S(1)}, bias: {tp: I} -> {tp: I}
def masked_residual(x, weight, bias, residual):
    group = mesh.get_group("tp")
    first = dist.get_rank(group) == 0
    partial = F.linear(x, weight)
    if first:
        partial = partial + residual.detach()
    return AllReduce.apply(partial, group) + bias
