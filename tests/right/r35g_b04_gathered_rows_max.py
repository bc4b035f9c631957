import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class _PaddedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        n = torch.tensor([x.shape[0]], device=x.device)
        dist.all_reduce(n, op=dist.ReduceOp.MAX)
        pad = int(n) - x.shape[0]
        ctx.rows = x.shape[0]
        x = F.pad(x, (0, 0, 0, pad))
        mean = x.sum(0)
        dist.all_reduce(mean)
        mean = mean / (x.shape[0] * dist.get_world_size())
        return x - mean

    @staticmethod
    def backward(ctx, dy):
        s = dy.sum(0)
        dist.all_reduce(s)
        dx = dy - s / (dy.shape[0] * dist.get_world_size())
        return dx[: ctx.rows]
