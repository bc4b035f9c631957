# the variance is taken about the mean of all ranks, and both moments are summed together
import torch
import torch.distributed as dist
from torch import nn


class RunningNorm(nn.Module):
    def __init__(self, dim, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))

    @torch.no_grad()
    def update(self, x):
        first, second = x.mean(0), x.square().mean(0)
        both = torch.stack([first, second])
        dist.all_reduce(both)
        both /= dist.get_world_size()
        mean, second = both.unbind(0)
        var = second - mean.square()
        self.mean.lerp_(mean, self.momentum)
        self.var.lerp_(var, self.momentum)

    def forward(self, x):
        if self.training:
            self.update(x)
        return (x - self.mean) * torch.rsqrt(self.var + 1e-5)
