import torch
import torch.distributed as dist

from torch import nn
class N(nn.Module):
    def __init__(self, dim, g):
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.ones(dim // dist.get_world_size(g)))
    def forward(self, x):
        return self.weight * x * torch.rsqrt(s(x) / self.dim)
def s(x):
    return t(x)
def t(x):
    return s(x)
