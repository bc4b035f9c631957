"""LoRA on a frozen row-parallel layer: the low-rank product is summed before the replicated factor."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class SumBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class LoraRow(nn.Module):
    def __init__(self, inner, hidden, rank, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group = group
        self.weight = nn.Parameter(torch.empty(hidden, inner // n), requires_grad=False)
        self.a = nn.Parameter(torch.randn(rank, inner // n) * 0.01)
        self.b = nn.Parameter(torch.zeros(hidden, rank))

    def forward(self, x):
        base = F.linear(x, self.weight)
        low = SumForward.apply(F.linear(x, self.a), self.group)
        return SumForward.apply(base, self.group) + F.linear(low, self.b)


class LoraColumn(nn.Module):
    def __init__(self, hidden, inner, rank, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group = group
        self.weight = nn.Parameter(torch.empty(inner // n, hidden), requires_grad=False)
        self.a = nn.Parameter(torch.randn(rank, hidden) * 0.01)
        self.b = nn.Parameter(torch.zeros(inner // n, rank))

    def forward(self, x):
        low = SumBackward.apply(F.linear(x, self.a), self.group)
        x = SumBackward.apply(x, self.group)
        return F.linear(x, self.weight) + F.linear(low, self.b)
