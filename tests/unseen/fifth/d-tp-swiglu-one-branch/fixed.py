"""SwiGLU feed-forward with hand-written tensor parallelism."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, g):
        return g, None


class ParallelSwiGLU(nn.Module):
    def __init__(self, dim, hidden, tp_group):
        super().__init__()
        world = dist.get_world_size(tp_group)
        assert hidden % world == 0
        self.tp_group = tp_group
        self.w1 = nn.Parameter(torch.empty(hidden // world, dim))
        self.w3 = nn.Parameter(torch.empty(hidden // world, dim))
        self.w2 = nn.Parameter(torch.empty(dim, hidden // world))

    def forward(self, x):
        h = CopyToTP.apply(x, self.tp_group)
        gate = F.silu(F.linear(h, self.w1))
        up = F.linear(h, self.w3)
        return ReduceFromTP.apply(F.linear(gate * up, self.w2), self.tp_group)
