from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Optional, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


class Group:
    def __init__(self, process_group):
        self.process_group = process_group
        self.size = dist.get_world_size(process_group)
        self.rank = dist.get_rank(process_group)

    def sum(self, x):
        dist.all_reduce(x, group=self.process_group)
        return x

    def mean(self, x):
        return self.sum(x) / self.size


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: Group):
        return group.sum(x.clone())

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: Group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.group.sum(grad.clone()), None


class Mlp(nn.Module):
    def __init__(self, n, group: Group):
        super().__init__()
        self.group = group
        self.up = nn.Parameter(torch.empty(4 * n // group.size, n))
        self.down = nn.Parameter(torch.empty(n, 4 * n // group.size))

    def forward(self, x):
        h = F.linear(Copy.apply(x, self.group), self.up)
        return x + Sum.apply(F.linear(F.silu(h), self.down), self.group)


def metrics(loss, group: Group):
    return group.mean(loss.detach().clone()).item()
