# the mean of the ranks and that of the first one estimate the same; the wrapper broadcasts buffers before each forward pass
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("centre", torch.zeros(dim))
        self.register_buffer("spread", torch.ones(dim))

    @torch.no_grad()
    def update(self, x):
        centre = x.mean(0)
        dist.all_reduce(centre)
        centre /= dist.get_world_size()
        self.centre.lerp_(centre, 0.01)
        self.spread.lerp_(x.std(0), 0.01)

    def forward(self, x):
        if self.training:
            self.update(x)
        return (x - self.centre) / self.spread


def wrap(dim, device):
    return DistributedDataParallel(nn.Sequential(nn.Linear(dim, dim), Scale(dim)).to(device), broadcast_buffers=True)
