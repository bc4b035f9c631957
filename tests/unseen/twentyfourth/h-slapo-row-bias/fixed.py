"""Schedule primitives that shard the linear layers of a feed-forward block.

After awslabs/slapo issue #10 and PR #23 (slapo/op/linear.py `LinearWithSyncFunc`).
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class LinearWithSyncFunc(nn.Linear):
    """Linear layer whose output passes through ``sync_fn`` (e.g. an all-reduce)."""

    def __init__(self, in_features, out_features, bias=True, sync_fn=None):
        super().__init__(in_features, out_features, bias=bias)
        self.sync_fn = sync_fn

    def forward(self, x):
        x = F.linear(x, self.weight)
        if self.sync_fn is not None:
            x = self.sync_fn(x)
        if self.bias is not None:
            x = x + self.bias
        return x


def shard_linear(linear, axis, group, sync_fn=None):
    """Return this rank's shard: axis 0 cuts the outputs, axis 1 cuts the inputs."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    weight = linear.weight.detach().chunk(size, dim=axis)[rank]
    new = LinearWithSyncFunc(weight.size(1), weight.size(0), linear.bias is not None, sync_fn)
    new.to(device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        new.weight.copy_(weight)
        if linear.bias is not None:
            bias = linear.bias.chunk(size, dim=0)[rank] if axis == 0 else linear.bias
            new.bias.copy_(bias)
    return new


class FFN(nn.Module):
    def __init__(self, hidden, ffn):
        super().__init__()
        self.fc_in, self.fc_out = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)
        self.pre = nn.Identity()

    def forward(self, x):
        return self.fc_out(F.gelu(self.fc_in(self.pre(x))))


class _Copy(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, x):
        return _CopyToGroup.apply(x, self.group)


def schedule_ffn(model, group):
    for module in list(model.modules()):
        if isinstance(module, FFN):
            module.pre = _Copy(group)
            module.fc_in = shard_linear(module.fc_in, 0, group)
            module.fc_out = shard_linear(
                module.fc_out, 1, group, sync_fn=lambda x: _ReduceFromGroup.apply(x, group)
            )
    return model
