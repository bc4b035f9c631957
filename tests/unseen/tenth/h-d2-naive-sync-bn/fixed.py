"""Batch norm with statistics over all workers (detectron2 NaiveSyncBatchNorm)."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_reduce


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    def forward(self, input):
        if dist.get_world_size() == 1 or not self.training:
            return super().forward(input)

        B, C = input.shape[0], input.shape[1]
        assert B > 0, "SyncBatchNorm does not support empty inputs"
        mean = torch.mean(input, dim=[0, 2, 3])
        meansqr = torch.mean(input * input, dim=[0, 2, 3])

        vec = torch.cat([mean, meansqr], dim=0)
        vec = all_reduce(vec)
        vec = vec / dist.get_world_size()

        mean, meansqr = torch.split(vec, C)
        var = meansqr - mean * mean
        invstd = torch.rsqrt(var + self.eps)
        scale = (self.weight * invstd).reshape(1, -1, 1, 1)
        bias = (self.bias - mean * self.weight * invstd).reshape(1, -1, 1, 1)

        self.running_mean += self.momentum * (mean.detach() - self.running_mean)
        self.running_var += self.momentum * (var.detach() - self.running_var)
        return input * scale + bias
