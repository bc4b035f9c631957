"""Synchronised batch normalisation over [N, C] inputs, N may differ between ranks."""
# thread: pytorch/pytorch#36382
import torch
import torch.distributed as dist


class SyncBatchNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, group):
        c = x.size(1)
        count = torch.full((1,), x.size(0), dtype=x.dtype, device=x.device)
        stats = torch.cat([x.sum(0), x.square().sum(0), count])
        dist.all_reduce(stats, group=group)
        total = stats[-1]
        mean = stats[:c] / total
        invstd = torch.rsqrt(stats[c:2 * c] / total - mean.square() + eps)
        ctx.save_for_backward(x, weight, mean, invstd, total)
        ctx.group = group
        return (x - mean) * invstd * weight + bias

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, invstd, total = ctx.saved_tensors
        xhat = (x - mean) * invstd
        grad_bias, grad_weight = dy.sum(0), (dy * xhat).sum(0)  # reduced by the data-parallel wrapper
        sums = torch.stack([grad_bias, grad_weight])
        dist.all_reduce(sums, group=ctx.group)
        mean_dy, mean_dy_xhat = sums / total
        dx = weight * invstd * (dy - mean_dy - xhat * mean_dy_xhat)
        return dx, grad_weight, grad_bias, None, None
