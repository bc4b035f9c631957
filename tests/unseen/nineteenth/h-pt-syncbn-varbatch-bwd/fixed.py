"""Synchronised batch norm for a different batch size on every rank. pytorch/pytorch, pull request #36382."""
import torch
import torch.distributed as dist


class SyncBatchNormFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, group):
        # x: [n_r, c], n_r differs between the ranks
        count = x.new_full((1,), x.size(0))
        stats = torch.cat([x.sum(0), x.square().sum(0), count])
        dist.all_reduce(stats, group=group)
        c = x.size(1)
        total = stats[2 * c]
        mean = stats[:c] / total
        var = stats[c:2 * c] / total - mean.square()
        invstd = torch.rsqrt(var + eps)
        xhat = (x - mean) * invstd
        ctx.group = group
        ctx.save_for_backward(xhat, weight, invstd, total)
        return xhat * weight + bias

    @staticmethod
    def backward(ctx, dy):
        xhat, weight, invstd, total = ctx.saved_tensors
        grad_bias = dy.sum(0)  # DDP reduces the parameter gradients
        grad_weight = (dy * xhat).sum(0)

        combined = torch.stack([grad_bias, grad_weight])
        dist.all_reduce(combined, group=ctx.group)
        combined = combined / total
        mean_dy, mean_dy_xhat = combined
        dx = (dy - mean_dy - xhat * mean_dy_xhat) * weight * invstd
        return dx, grad_weight, grad_bias, None, None


class SyncBatchNorm1d(torch.nn.Module):
    def __init__(self, num_features, group, eps=1e-5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(num_features))
        self.bias = torch.nn.Parameter(torch.zeros(num_features))
        self.eps, self.group = eps, group

    def forward(self, x):
        return SyncBatchNormFn.apply(x, self.weight, self.bias, self.eps, self.group)
