from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Optional, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GroupHandle:
    ranks: tuple
    local_rank: int
    process_group: Any

    @property
    def size(self):
        return len(self.ranks)

    @property
    def is_trivial(self):
        return self.size == 1


class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: GroupHandle):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        if ctx.group.is_trivial:
            return grad, None
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group.process_group)
        return grad, None


class ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: GroupHandle):
        if group.is_trivial:
            return x
        x = x.clone()
        dist.all_reduce(x, group=group.process_group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ScatterTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: GroupHandle):
        ctx.group = group
        return x.chunk(group.size, dim=1)[group.local_rank].contiguous()

    @staticmethod
    def backward(ctx, grad):
        parts = [torch.empty_like(grad) for _ in range(ctx.group.size)]
        dist.all_gather(parts, grad.contiguous(), group=ctx.group.process_group)
        return torch.cat(parts, dim=1), None


class GatherFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: GroupHandle):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(group.size)]
        dist.all_gather(parts, x.contiguous(), group=group.process_group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(ctx.group.size, dim=1)[ctx.group.local_rank].contiguous(), None


class Column(nn.Module):
    def __init__(self, n_in, n_out, group: GroupHandle):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(n_out // group.size, n_in))

    def forward(self, x):
        if not self.group.is_trivial:
            x = CopyTo.apply(x, self.group)
        return F.linear(x, self.weight)


class Row(nn.Module):
    def __init__(self, n_in, n_out, group: GroupHandle):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(n_out, n_in // group.size))

    def forward(self, x):
        y = F.linear(x, self.weight)
        if self.group.size > 1:
            y = ReduceFrom.apply(y, self.group)
        return y


class Mlp(nn.Module):
    def __init__(self, n, group: GroupHandle):
        super().__init__()
        self.up, self.down = Column(n, 4 * n, group), Row(4 * n, n, group)

    def forward(self, x):
        return x + self.down(F.silu(self.up(x)))
