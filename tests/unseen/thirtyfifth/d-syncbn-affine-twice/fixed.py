"""Cross-rank batch normalisation used inside a DDP model."""
# thread: sony/nnabla#1120
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class _CrossRankNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, eps):
        # x: [N, C, H, W], the same shape on every rank
        moments = torch.stack([x.mean((0, 2, 3)), x.square().mean((0, 2, 3))])
        dist.all_reduce(moments)
        mean, sq = moments / dist.get_world_size()
        rstd = torch.rsqrt(sq - mean.square() + eps)
        xhat = (x - mean[None, :, None, None]) * rstd[None, :, None, None]
        ctx.save_for_backward(xhat, gamma, rstd)
        return xhat * gamma[None, :, None, None] + beta[None, :, None, None]

    @staticmethod
    def backward(ctx, dy):
        xhat, gamma, rstd = ctx.saved_tensors
        local = torch.stack([dy.sum((0, 2, 3)), (dy * xhat).sum((0, 2, 3))])
        sums = local.clone()
        dist.all_reduce(sums)
        n = dy.numel() // dy.size(1) * dist.get_world_size()
        m = sums[:, None, :, None, None] / n
        dx = (gamma * rstd)[None, :, None, None] * (dy - m[0] - xhat * m[1])
        return dx, local[1], local[0], None


class CrossRankBatchNorm2d(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        return _CrossRankNorm.apply(x, self.gamma, self.beta, self.eps)


def build(local_rank, channels=64):
    net = nn.Sequential(nn.Conv2d(3, channels, 3, bias=False), CrossRankBatchNorm2d(channels), nn.ReLU())
    return DDP(net.cuda(local_rank), device_ids=[local_rank])
