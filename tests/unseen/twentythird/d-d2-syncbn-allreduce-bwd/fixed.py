"""Synchronised batch norm out of plain tensor operations."""
import torch
import torch.distributed as dist
from torch import nn


class AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        return torch.stack(out, dim=0).sum(dim=0)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous().clone()
        dist.all_reduce(grad_output)
        return grad_output


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    def forward(self, x):
        if dist.get_world_size() == 1 or not self.training:
            return super().forward(x)
        c = x.shape[1]
        mean = x.mean(dim=[0, 2, 3])
        meansqr = (x * x).mean(dim=[0, 2, 3])
        vec = AllReduce.apply(torch.cat([mean, meansqr])) * (1.0 / dist.get_world_size())
        mean, meansqr = torch.split(vec, c)
        var = meansqr - mean * mean
        scale = self.weight * torch.rsqrt(var + self.eps)
        bias = self.bias - mean * scale
        with torch.no_grad():
            self.running_mean += self.momentum * (mean - self.running_mean)
            self.running_var += self.momentum * (var - self.running_var)
        return x * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
