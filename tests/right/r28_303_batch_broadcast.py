# Right: all ranks have the same batch: it is broadcast from rank 0
import torch
import torch.distributed as dist
from torch import nn


class Normalizer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))

    @torch.no_grad()
    def update(self, x):
        self.mean.lerp_(x.mean(dim=0), 0.01)

    def forward(self, x):
        return x - self.mean


def train(norm, policy, batches, optimizer):
    for x in batches:
        dist.broadcast(x, src=0)
        norm.update(x)
        own = norm(x).chunk(dist.get_world_size())[dist.get_rank()]
        policy(own).mean().backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
