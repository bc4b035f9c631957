"""The scale is a buffer, and its gradient is nobody's; the wrapper has nothing to do with it."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        grad_scale = (grad * x).sum(0)
        dist.all_reduce(grad_scale)
        return grad * scale, grad_scale


class Scale(nn.Module):
    def __init__(self, dim, source):
        super().__init__()
        self.source = source
        self.body = nn.Linear(dim, dim)

    def forward(self, x):
        scale = self.source(x)
        return Fn.apply(self.body(x), scale)


def build(rank, source):
    return DistributedDataParallel(Scale(8, source).cuda(rank), device_ids=[rank])
