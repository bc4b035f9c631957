"""Synchronised batch norm as an autograd function."""
import torch
import torch.distributed as dist


class SyncBN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, group):
        n = torch.full((1,), x.numel() / x.shape[1], device=x.device)
        dims = [0, 2, 3]
        stats = torch.cat([x.sum(dims), x.pow(2).sum(dims), n])
        dist.all_reduce(stats, group=group)
        c = x.shape[1]
        total = stats[-1]
        mean = stats[:c] / total
        var = stats[c : 2 * c] / total - mean**2
        invstd = torch.rsqrt(var + eps)
        view = lambda t: t.view(1, -1, 1, 1)
        xhat = (x - view(mean)) * view(invstd)
        ctx.save_for_backward(xhat, weight, invstd, total)
        ctx.group = group
        return xhat * view(weight) + view(bias)

    @staticmethod
    def backward(ctx, dy):
        xhat, weight, invstd, total = ctx.saved_tensors
        dims = [0, 2, 3]
        view = lambda t: t.view(1, -1, 1, 1)
        dbias = dy.sum(dims)
        dweight = (dy * xhat).sum(dims)
        sums = torch.cat([dbias, dweight])
        dist.all_reduce(sums, group=ctx.group)
        c = dbias.numel()
        sum_dy, sum_dy_xhat = sums[:c], sums[c:]
        dx = view(weight * invstd) * (dy - view(sum_dy / total) - xhat * view(sum_dy_xhat / total))
        # dweight and dbias stay local: the data-parallel wrapper averages them
        return dx, dweight, dbias, None, None


class SyncBatchNorm2d(torch.nn.Module):
    def __init__(self, channels, group=None, eps=1e-5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(channels))
        self.bias = torch.nn.Parameter(torch.zeros(channels))
        self.eps, self.group = eps, group

    def forward(self, x):
        return SyncBN.apply(x, self.weight, self.bias, self.eps, self.group)
