"""Statistics of all ranks by a gather and a sum, whose backward sums the gradients of all ranks."""

import torch
import torch.distributed as dist
from torch import nn


class Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.stack(parts).sum(0)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class Norm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        mean, square = x.mean(dim=0), (x * x).mean(dim=0)
        mean, square = (Total.apply(torch.stack([mean, square])) / dist.get_world_size()).unbind(0)
        return (x - mean) * torch.rsqrt(square - mean * mean + 1e-5) * self.weight
