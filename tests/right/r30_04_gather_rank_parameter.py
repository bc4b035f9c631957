import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp_group, tp_size, tp_rank):
        ctx.tp_size = tp_size
        ctx.tp_rank = tp_rank
        parts = [torch.empty_like(x) for _ in range(tp_size)]
        dist.all_gather(parts, x, group=tp_group)
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, g):
        n = g.shape[-1] // ctx.tp_size
        return g[..., ctx.tp_rank * n : (ctx.tp_rank + 1) * n].contiguous(), None, None, None


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class Col(nn.Module):
    def __init__(self, n, k, group, size, rank):
        super().__init__()
        self.tp_group, self.tp_size, self.tp_rank = group, size, rank
        self.weight = nn.Parameter(torch.empty(n // self.tp_size, k))

    def forward(self, x):
        y = F.linear(Copy.apply(x, self.tp_group), self.weight)
        y = Gather.apply(y, self.tp_group, self.tp_size, self.tp_rank)
        return y + x
