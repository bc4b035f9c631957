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


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MLP(nn.Module):
    def __init__(self, dim, ffn, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, ffn // dist.get_world_size(tp_group), bias=False)
        self.down = nn.Linear(ffn // dist.get_world_size(tp_group), dim, bias=False)

    def forward(self, x):
        h = self.norm(x)
        if self.training:
            h = Copy.apply(h, self.tp_group)
        return x + Reduce.apply(self.down(F.gelu(self.up(h))), self.tp_group)
