# awslabs/slapo issue 10
"""Sharded linear layers of a scheduled MLP."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class _ReduceForwardOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, group):
        inp = inp.clone()
        dist.all_reduce(inp, group=group)
        return inp

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class _ReduceBackwardGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, group):
        ctx.group = group
        return inp

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous().clone()
        dist.all_reduce(grad_output, group=ctx.group)
        return grad_output, None


class LinearWithSyncFunc(nn.Linear):
    """A linear layer with a synchronization function for its output."""

    def __init__(self, in_features, out_features, bias=True, sync_fn=None):
        super().__init__(in_features, out_features, bias)
        self.sync_fn = sync_fn

    def forward(self, x):
        x = F.linear(x, self.weight)
        if self.sync_fn is not None:
            x = self.sync_fn(x)
        if self.bias is not None:
            x = x + self.bias
        return x


def shard(linear, axis, group, sync_fn=None):
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    weight = linear.weight.detach().chunk(world_size, dim=axis)[rank]
    bias = linear.bias.detach().chunk(world_size)[rank] if axis == 0 else linear.bias.detach()
    new = LinearWithSyncFunc(weight.size(1), weight.size(0), sync_fn=sync_fn)
    new.weight.data.copy_(weight)
    new.bias.data.copy_(bias)
    return new


class ShardedMLP(nn.Module):
    def __init__(self, fc1: nn.Linear, fc2: nn.Linear, group):
        super().__init__()
        self.group = group
        self.fc1 = shard(fc1, 0, group)
        self.fc2 = shard(fc2, 1, group, sync_fn=lambda out: _ReduceForwardOutput.apply(out, group))

    def forward(self, x):
        x = _ReduceBackwardGrad.apply(x, self.group)
        return self.fc2(F.gelu(self.fc1(x)))
