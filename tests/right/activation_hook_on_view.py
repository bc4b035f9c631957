"""Column layer whose entry sums the gradient with a tensor hook on a view."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MLP(nn.Module):
    def __init__(self, width, inner, group):
        super().__init__()
        self.group = group
        n = dist.get_world_size(group)
        self.norm = nn.LayerNorm(width)
        self.w_in = nn.Parameter(torch.empty(inner // n, width))
        self.w_out = nn.Parameter(torch.empty(width, inner // n))

    def _sum(self, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=self.group)
        return grad

    def forward(self, x):
        h = self.norm(x)
        entry = h.view_as(h)
        if entry.requires_grad:
            entry.register_hook(self._sum)
        y = F.gelu(F.linear(entry, self.w_in))
        return x + Reduce.apply(F.linear(y, self.w_out), self.group)
