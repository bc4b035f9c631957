"""Synchronized batch normalisation with batches of different size on the ranks.

Source: https://github.com/pytorch/pytorch/pull/36382
"""
import torch
import torch.distributed as dist


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, group):
        # x: [n, c], n differs between the ranks
        c = x.size(1)
        count = torch.full((1,), float(x.size(0)), dtype=x.dtype, device=x.device)
        sums = torch.cat([x.sum(0), (x * x).sum(0), count])
        dist.all_reduce(sums, group=group)
        total = sums[2 * c]
        mean = sums[:c] / total
        invstd = torch.rsqrt(sums[c:2 * c] / total - mean * mean + eps)
        xhat = (x - mean) * invstd
        ctx.save_for_backward(xhat, weight, invstd, total)
        ctx.group = group
        return xhat * weight + bias

    @staticmethod
    def backward(ctx, dy):
        xhat, weight, invstd, total = ctx.saved_tensors
        grad_weight, grad_bias = (dy * xhat).sum(0), dy.sum(0)
        stats = torch.cat([dy.mean(0), (dy * xhat).mean(0)])
        dist.all_reduce(stats, group=ctx.group)
        stats = stats / dist.get_world_size(ctx.group)  # BUG
        mean_dy, mean_dy_xhat = stats.chunk(2)
        dx = (dy - mean_dy - xhat * mean_dy_xhat) * weight * invstd
        return dx, grad_weight, grad_bias, None, None
