import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class _SyncBN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        world = dist.get_world_size()
        stats = torch.cat([x.sum(0), x.pow(2).sum(0), torch.tensor([float(x.shape[0])], device=x.device)])
        dist.all_reduce(stats)
        c = x.shape[1]
        n = stats[-1]
        mean, var = stats[:c] / n, stats[c:2 * c] / n - (stats[:c] / n) ** 2
        xhat = (x - mean) * torch.rsqrt(var + eps)
        ctx.save_for_backward(xhat, weight, var)
        ctx.eps = eps
        ctx.n = n
        return xhat * weight + bias

    @staticmethod
    def backward(ctx, dy):
        xhat, weight, var = ctx.saved_tensors
        world = dist.get_world_size()
        sums = torch.cat([dy.sum(0), (dy * xhat).sum(0)])
        dw, db = (dy * xhat).sum(0), dy.sum(0)
        dist.all_reduce(sums)
        m = sums / (dy.shape[0] * world)
        c = xhat.shape[1]
        dx = weight * torch.rsqrt(var + ctx.eps) * (dy - m[:c] - xhat * m[c:])
        return dx, dw, db, None


class StaticLoader:
    """Every rank yields BATCH rows; the tail is padded."""
    BATCH = 64

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        for i in range(0, self.data.shape[0], self.BATCH):
            x = self.data[i:i + self.BATCH]
            yield F.pad(x, (0, 0, 0, self.BATCH - x.shape[0]))
