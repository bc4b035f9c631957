# the sums are reduced in the buffer itself, once in some steps, in a method of its own
import torch
import torch.distributed as dist
from torch import nn


class Codes(nn.Module):
    def __init__(self, size, dim, decay=0.99):
        super().__init__()
        self.decay = decay
        self.register_buffer("count", torch.ones(size))
        self.register_buffer("total", torch.randn(size, dim))

    @torch.no_grad()
    def update(self, x, onehot):
        count = onehot.sum(0)
        dist.all_reduce(count)
        self.count.mul_(self.decay).add_(count, alpha=1 - self.decay)
        self.total.mul_(self.decay).add_(onehot.t() @ x, alpha=1 - self.decay)

    def before_use(self):
        dist.all_reduce(self.total)

    def codes(self):
        return self.total / self.count.unsqueeze(1)
