import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    def __init__(self, dim, count):
        super().__init__()
        n, r = dist.get_world_size(), dist.get_rank()
        self.w = nn.Parameter(torch.randn(count // n, dim, dim))

    @classmethod
    def of(cls, dense, dim, count):
        n, r = dist.get_world_size(), dist.get_rank()
        e = cls(dim, count).cuda()
        e.w.data.copy_(dense.w.data.chunk(n, dim=0)[r])
        return e

    def forward(self, x):
        # (local experts, tokens of this rank's experts, dim)
        return torch.bmm(x, self.w)


class Layer(nn.Module):
    def __init__(self, dense, dim, count):
        super().__init__()
        self.experts = Experts.of(dense, dim, count)
        self.gate = nn.Linear(dim, count)

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        sent = torch.empty_like(x)
        dist.all_to_all_single(sent, x)
        return self.experts(sent.unsqueeze(0)).squeeze(0) * weights.max(-1, keepdim=True).values
