# right: a forward hook, registered in the constructor, sums the output
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class TableShard(nn.Module):
    def __init__(self, n, d, group):
        super().__init__()
        self.group = group
        own = n // dist.get_world_size(group)
        self.first = own * dist.get_rank(group)
        self.last = self.first + own
        self.weight = nn.Parameter(torch.empty(own, d))
        self.register_forward_hook(self._finish)

    def _finish(self, module, args, output):
        return _Sum.apply(output, self.group)

    def forward(self, tokens):
        mask = (tokens < self.first) | (tokens >= self.last)
        y = F.embedding((tokens - self.first).masked_fill(mask, 0), self.weight)
        y[mask, :] = 0.0
        return y
