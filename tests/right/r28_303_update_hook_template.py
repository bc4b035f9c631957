# Right: the base class calls self.reduce of the subclass before it updates
import torch
import torch.distributed as dist
from torch import nn


class RunningMean(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("count", torch.zeros(()))

    def moments(self, x):
        return x.mean(dim=0), x.shape[0]

    @torch.no_grad()
    def update(self, x):
        batch, n = self.moments(x)
        self.count += n
        self.mean += (batch - self.mean) * (n / self.count)


class SyncedMean(RunningMean):
    def moments(self, x):
        s = torch.cat([x.sum(0), x.new_tensor([float(x.shape[0])])])
        dist.all_reduce(s)
        return s[:-1] / s[-1], s[-1]


def average(policy):
    for p in policy.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
