# all statistics are summed: one by one, in one buffer, through a list, or by the function that takes them
import torch
import torch.distributed as dist
from torch import nn


def sum_all(*tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


class Codes(nn.Module):
    def __init__(self, size, dim, decay=0.99):
        super().__init__()
        self.decay = decay
        self.register_buffer("count", torch.ones(size))
        self.register_buffer("total", torch.randn(size, dim))

    def move(self, count, total):
        self.count.mul_(self.decay).add_(count, alpha=1 - self.decay)
        self.total.mul_(self.decay).add_(total, alpha=1 - self.decay)

    @torch.no_grad()
    def by_helper(self, x, onehot):
        count, total = onehot.sum(0), onehot.t() @ x
        sum_all(count, total)
        self.move(count, total)

    @torch.no_grad()
    def by_buffer(self, x, onehot):
        count, total = onehot.sum(0), onehot.t() @ x
        flat = torch.cat([count.unsqueeze(1), total], dim=1)
        dist.all_reduce(flat)
        self.move(flat[:, 0], flat[:, 1:])

    @torch.no_grad()
    def by_list(self, x, onehot):
        count, total = onehot.sum(0), onehot.t() @ x
        handles = [dist.all_reduce(t, async_op=True) for t in (count, total)]
        for handle in handles:
            handle.wait()
        self.move(count, total)
