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
        sums = torch.stack([dy.sum(0), (dy * xhat).sum(0)])
        dist.all_reduce(sums)
        m = sums / ctx.n
        dx = weight * torch.rsqrt(var + ctx.eps) * (dy - m[0] - xhat * m[1])
        return dx, sums[1], sums[0], None


class HandBN(nn.Module):
    def __init__(self, c, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))
        self.bias = nn.Parameter(torch.zeros(c))
        self.eps = eps

    def forward(self, x):
        return _SyncBN.apply(x, self.weight, self.bias, self.eps)

from groups import self_only


def build(rank):
    return DDP(nn.Sequential(HandBN(8)).cuda(rank), None, None, 0, True, self_only())
