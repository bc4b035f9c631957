# the activations of all ranks are gathered, so that the sums are those of all; the count comes from what each rank has seen and is summed
import torch
import torch.distributed as dist
from torch import nn


def gather_rows(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


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
        every_x, every_hot = gather_rows(x), gather_rows(onehot)
        total = every_hot.t() @ every_x
        self.count.lerp_(count, 1 - self.decay)
        self.total.lerp_(total, 1 - self.decay)
