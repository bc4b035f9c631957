import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(dist.get_world_size(ctx.group), -1)[dist.get_rank(ctx.group)], None


class Split(nn.Module):
    def __init__(self, dim, tp_group, tp_rank):
        super().__init__()
        self.tp_group = tp_group
        self.n = dim // dist.get_world_size(tp_group)
        self.tp_rank = tp_rank

    def forward(self, x):
        x = Copy.apply(x, self.tp_group)
        first = self.tp_rank * self.n
        own = x[..., first : first + self.n]
        return Gather.apply(own, self.tp_group)
