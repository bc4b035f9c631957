# Reduces detectron2's NaiveSyncBatchNorm: the statistics of all ranks normalise the different activations of each
# rank, but backward hands every rank only the gradient of its own use of the statistics.
import torch
import torch.distributed as dist
from torch import nn


class AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.clone()
        dist.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output  # BUG


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    """All ranks have the same batch size and image size."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        C = x.shape[1]
        mean = torch.mean(x, dim=[0, 2, 3])
        meansqr = torch.mean(x * x, dim=[0, 2, 3])
        vec = torch.cat([mean, meansqr], dim=0)
        vec = AllReduce.apply(vec) * (1.0 / dist.get_world_size())
        mean, meansqr = torch.split(vec, C)
        var = meansqr - mean * mean
        invstd = torch.rsqrt(var + self.eps)
        scale = self.weight * invstd
        bias = self.bias - mean * scale
        self.running_mean += self.momentum * (mean.detach() - self.running_mean)
        self.running_var += self.momentum * (var.detach() - self.running_var)
        return x * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)


def build(backbone, device):
    backbone.stem_norm = NaiveSyncBatchNorm(64)
    model = backbone.to(device)
    return nn.parallel.DistributedDataParallel(model, device_ids=[device.index], broadcast_buffers=False)
