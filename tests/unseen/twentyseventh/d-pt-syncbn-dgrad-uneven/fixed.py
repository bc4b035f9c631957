"""Synchronised batch norm for per-rank batches of different size."""
import torch
import torch.distributed as dist

DIMS = (0, 2, 3)


def _c(v):
    return v.view(1, -1, 1, 1)


class SyncBatchNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, group):
        count = x.new_full((1,), x.numel() // x.size(1))
        stats = torch.cat([x.sum(DIMS), x.pow(2).sum(DIMS), count])
        dist.all_reduce(stats, group=group)
        total = stats[-1]
        mean, mean_sq = (stats[:-1] / total).chunk(2)
        invstd = torch.rsqrt(mean_sq - mean.pow(2) + eps)
        ctx.save_for_backward(x, weight, mean, invstd, total)
        ctx.group = group
        return (x - _c(mean)) * _c(invstd * weight) + _c(bias)

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, invstd, total = ctx.saved_tensors
        xmu = x - _c(mean)
        grad_weight, grad_bias = (dy * xmu).sum(DIMS) * invstd, dy.sum(DIMS)
        stats = torch.cat([dy.sum(DIMS), (dy * xmu).sum(DIMS)])
        dist.all_reduce(stats, group=ctx.group)
        stats = stats / total
        mean_dy, mean_dy_xmu = stats.chunk(2)
        grad_x = (dy - _c(mean_dy) - xmu * _c(invstd.pow(2) * mean_dy_xmu)) * _c(invstd * weight)
        return grad_x, grad_weight, grad_bias, None, None
