"""Synchronised batch norm as an autograd function, trained under DDP.

Source: https://github.com/sony/nnabla/pull/1120 (nnabla; here in the idiom of a PyTorch project)
Wrong: backward all-reduces the sums that the input gradient needs and returns the same tensors as
gradients of weight and bias; DDP reduces them again, so they are world_size times too large.
Repair: reduce a copy, return the local sums.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from mmengine.model import MMDistributedDataParallel


class SyncBatchNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, group):
        # x: [n, c, h, w]
        count = x.numel() // x.size(1)
        stats = torch.cat([x.sum((0, 2, 3)), (x * x).sum((0, 2, 3)), x.new_tensor([count])])
        dist.all_reduce(stats, group=group)
        total = stats[-1]
        mean, sq = (stats[:-1] / total).chunk(2)
        invstd = torch.rsqrt(sq - mean * mean + eps)
        xhat = (x - mean[:, None, None]) * invstd[:, None, None]
        ctx.save_for_backward(xhat, weight, invstd, total)
        ctx.group = group
        return xhat * weight[:, None, None] + bias[:, None, None]

    @staticmethod
    def backward(ctx, dy):
        xhat, weight, invstd, total = ctx.saved_tensors
        sums = torch.stack([dy.sum((0, 2, 3)), (dy * xhat).sum((0, 2, 3))])
        reduced = sums.clone()
        dist.all_reduce(reduced, group=ctx.group)
        mean_dy, mean_dy_xhat = reduced / total
        dx = dy - mean_dy[:, None, None] - xhat * mean_dy_xhat[:, None, None]
        dx = dx * (weight * invstd)[:, None, None]
        return dx, sums[1], sums[0], None, None


class SyncBN(nn.BatchNorm2d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        return SyncBatchNormFunction.apply(x, self.weight, self.bias, self.eps, dist.group.WORLD)


def wrap(model, device_id):
    return MMDistributedDataParallel(model.cuda(), device_ids=[device_id], broadcast_buffers=False)
