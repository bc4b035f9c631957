"""The sums are those of a copy; what is returned is of this rank. A sum of the gradient of the input is its own matter."""
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
        local = torch.stack([(grad * x).sum(0), grad.sum(0)])
        sums = local.clone()
        dist.all_reduce(sums)
        n = x.size(0) * dist.get_world_size()
        return grad * scale - sums[1] / n, local[0]


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return Fn.apply(x, self.scale)


def build(rank):
    return DistributedDataParallel(Scale(8).cuda(rank), device_ids=[rank])
