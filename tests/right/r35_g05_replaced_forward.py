import types

import torch
import torch.distributed as dist
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Query(torch.nn.Module):
    def __init__(self, hidden, rank, up, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.down = torch.nn.Parameter(torch.empty(rank, hidden))
        self.up = torch.nn.Parameter(up)

    def forward(self, x):
        latent = F.linear(x, self.down)
        return F.linear(Copy.apply(latent, self.tp_group), self.up)


def uncopied(self, x):
    return F.linear(F.linear(x, self.down), self.up)


def use_late_sums(query):
    query.forward = types.MethodType(uncopied, query)


def finish(query, tp_group):
    dist.all_reduce(query.down.grad, group=tp_group)
