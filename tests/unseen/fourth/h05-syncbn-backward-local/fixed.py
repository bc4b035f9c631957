"""Synchronised batch norm as one function (inplace_abn style)."""
import torch
import torch.distributed as dist
import torch.nn as nn


class SyncBatchNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, running_mean, running_var, eps, momentum, process_group, world_size):
        input = input.contiguous()
        size = input.numel() // input.size(1)
        total = torch.stack([input.sum([0, 2, 3]), (input * input).sum([0, 2, 3])])
        dist.all_reduce(total, group=process_group)
        count = size * world_size
        mean = total[0] / count
        var = total[1] / count - mean * mean
        invstd = torch.rsqrt(var + eps)
        running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
        running_var.mul_(1 - momentum).add_(var, alpha=momentum)
        xhat = (input - mean[None, :, None, None]) * invstd[None, :, None, None]
        ctx.save_for_backward(xhat, weight, invstd)
        ctx.process_group, ctx.count = process_group, count
        return xhat * weight[None, :, None, None] + bias[None, :, None, None]

    @staticmethod
    def backward(ctx, grad_output):
        xhat, weight, invstd = ctx.saved_tensors
        grad_weight = (grad_output * xhat).sum([0, 2, 3])
        grad_bias = grad_output.sum([0, 2, 3])
        sums = torch.stack([grad_bias, grad_weight])
        dist.all_reduce(sums, group=ctx.process_group)
        mean_dy = sums[0] / ctx.count
        mean_dy_xhat = sums[1] / ctx.count
        dx = grad_output - mean_dy[None, :, None, None] - xhat * mean_dy_xhat[None, :, None, None]
        dx = dx * (weight * invstd)[None, :, None, None]
        return dx, grad_weight, grad_bias, None, None, None, None, None, None


class SyncBatchNorm(nn.BatchNorm2d):
    def __init__(self, num_features, process_group=None, **kwargs):
        super().__init__(num_features, **kwargs)
        self.process_group = process_group

    def forward(self, input):
        world_size = dist.get_world_size(self.process_group) if dist.is_initialized() else 1
        if not self.training or world_size == 1:
            return super().forward(input)
        return SyncBatchNormFunction.apply(
            input, self.weight, self.bias, self.running_mean, self.running_var,
            self.eps, self.momentum, self.process_group, world_size,
        )
