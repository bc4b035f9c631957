"""Schedule primitives: shard a linear layer over the group and synchronise its input or output."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _ReduceForwardOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, op=dist.ReduceOp.SUM, group=group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class _ReduceBackwardGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous().clone()
        dist.all_reduce(grad_output, op=dist.ReduceOp.SUM, group=ctx.group)
        return grad_output, None


class ColumnShardedLinear(nn.Module):
    def __init__(self, linear: nn.Linear, group):
        super().__init__()
        self.group = group
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        self.weight = nn.Parameter(linear.weight.detach().chunk(world, dim=0)[rank].clone())
        self.bias = nn.Parameter(linear.bias.detach().chunk(world, dim=0)[rank].clone())

    def forward(self, x):
        return F.linear(_ReduceBackwardGrad.apply(x, self.group), self.weight, self.bias)


class RowShardedLinear(nn.Module):
    def __init__(self, linear: nn.Linear, group):
        super().__init__()
        self.group = group
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        self.weight = nn.Parameter(linear.weight.detach().chunk(world, dim=1)[rank].clone())
        self.bias = nn.Parameter(linear.bias.detach().clone())

    def forward(self, x):
        out = F.linear(x, self.weight, self.bias)  # BUG
        return _ReduceForwardOutput.apply(out, self.group)


def shard_mlp(mlp, group):
    mlp.fc1 = ColumnShardedLinear(mlp.fc1, group)
    mlp.fc2 = RowShardedLinear(mlp.fc2, group)
    return mlp
