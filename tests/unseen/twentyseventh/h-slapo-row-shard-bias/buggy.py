"""Shard an MLP over a tensor-parallel group by module rewriting and forward hooks."""
import torch
import torch.distributed as dist
from torch import nn


class AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class AllReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def shard_mlp(mlp, group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    mlp.fc1.weight = nn.Parameter(mlp.fc1.weight.chunk(world, dim=0)[rank].clone())
    mlp.fc1.bias = nn.Parameter(mlp.fc1.bias.chunk(world, dim=0)[rank].clone())
    mlp.fc2.weight = nn.Parameter(mlp.fc2.weight.chunk(world, dim=1)[rank].clone())
    mlp.fc1.register_forward_pre_hook(lambda m, args: (AllReduceBackward.apply(args[0], group),))
    mlp.fc2.register_forward_hook(lambda m, args, out: AllReduceForward.apply(out, group))  # BUG: out already contains the bias
    return mlp
