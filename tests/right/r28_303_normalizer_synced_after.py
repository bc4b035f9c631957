# Right: buffers are averaged in another function after each update
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


def sync_buffers(normalizer):
    for b in normalizer.buffers():
        dist.all_reduce(b)
        b /= dist.get_world_size()


def train(policy, normalizer, batches, optimizer):
    for obs in batches:
        normalizer.update(obs)
        sync_buffers(normalizer)
        policy(normalizer(obs)).mean().backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
