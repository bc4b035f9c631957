# Right: the caller gathers the observations of all ranks before the update
import torch
import torch.distributed as dist
from torch import nn


class Normalizer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(self, x):
        batch = x.mean(dim=0)
        self.count += x.shape[0]
        self.mean += (batch - self.mean) * (x.shape[0] / self.count)

    def forward(self, x):
        return x - self.mean


def collect(normalizer, obs):
    parts = [torch.empty_like(obs) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, obs)
    normalizer.update(torch.cat(parts))


def sum_gradients(policy):
    for p in policy.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
