import torch
import torch.distributed as dist
from torch import nn


def own_columns(x, group):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    return x.chunk(n, dim=-1)[r]


class RMSNorm(nn.Module):
    """Gets the whole row, gives this rank's columns."""

    def __init__(self, dim, group, eps=1e-6):
        super().__init__()
        self.dim, self.group, self.eps = dim, group, eps
        self.weight = nn.Parameter(torch.ones(dim // dist.get_world_size(group)))

    def forward(self, x):
        var = x.pow(2).sum(-1, keepdim=True) / self.dim
        return self.weight * own_columns(x * torch.rsqrt(var + self.eps), self.group)
