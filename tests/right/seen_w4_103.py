import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class AverageGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, group):
        ctx.group = group
        return w.view_as(w)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, op=dist.ReduceOp.AVG, group=ctx.group)
        return g, None


class Net(nn.Module):
    def __init__(self, i, o, group):
        super().__init__()
        self.w = nn.Parameter(torch.randn(i, o))
        self.group = group

    def forward(self, x):
        return F.gelu(x @ AverageGrad.apply(self.w, self.group))
