"""RMS norm of the full query projection when its heads are split over tensor-parallel ranks."""
import torch
import torch.distributed as dist
from torch import nn


class ShardedQNorm(nn.Module):
    """Normalises over n_heads * head_dim; this rank stores its slice of the weight."""

    def __init__(self, full_dim, tp_group, eps=1e-6):
        super().__init__()
        self.full_dim, self.eps, self.tp_group = full_dim, eps, tp_group
        self.weight = nn.Parameter(torch.ones(full_dim // tp_group.size()))

    def forward(self, q):
        # q: [batch, seq, full_dim / tp]
        dtype, q = q.dtype, q.float()
        sumsq = q.pow(2).sum(-1, keepdim=True)
        dist.all_reduce(sumsq, group=self.tp_group)  # BUG
        q = q * torch.rsqrt(sumsq / self.full_dim + self.eps)
        return (q * self.weight).to(dtype)
