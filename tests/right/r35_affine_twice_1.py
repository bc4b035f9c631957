"""The mean of equal means: the wrapper changes nothing."""
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
        grad_scale /= dist.get_world_size()
        return grad * scale, grad_scale


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return Fn.apply(x, self.scale)


def build(rank):
    return DistributedDataParallel(Scale(8).cuda(rank), device_ids=[rank])
