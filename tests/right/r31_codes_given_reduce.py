# the function that sums is chosen in the constructor
import torch
import torch.distributed as dist
from torch import nn


def nothing(x):
    return x


class Codes(nn.Module):
    def __init__(self, size, dim, sync, decay=0.99):
        super().__init__()
        self.decay = decay
        self.reduce = dist.all_reduce if sync else nothing
        self.finish = dist.all_reduce if sync else nothing
        self.register_buffer("count", torch.ones(size))
        self.register_buffer("total", torch.randn(size, dim))

    @torch.no_grad()
    def update(self, x, onehot):
        count = onehot.sum(0)
        dist.all_reduce(count)
        total = onehot.t() @ x
        self.finish(total)
        self.count.lerp_(count, 1 - self.decay)
        self.total.lerp_(total, 1 - self.decay)
