import torch
import torch.distributed as dist
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Row(nn.Module):
    def __init__(self, dim, hidden, group):
        super().__init__()
        self.group = group
        self.up = nn.Linear(dim, hidden // dist.get_world_size(group))
        self.down = nn.Linear(hidden // dist.get_world_size(group), dim, bias=False)

    def forward(self, x):
        y = self.down(self.up(Copy.apply(x, self.group)).relu())
        total = y.detach().clone()
        dist.all_reduce(total, group=self.group)
        # value of the sum, gradient of the own term
        return y + (total - y.detach())
