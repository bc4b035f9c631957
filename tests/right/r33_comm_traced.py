from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Optional, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


class Comm(Protocol):
    def all_reduce(self, x: Tensor, group: Any = None) -> Tensor: ...
    def all_gather(self, x: Tensor, dim: int, group: Any = None) -> Tensor: ...
    def reduce_scatter(self, x: Tensor, dim: int, group: Any = None) -> Tensor: ...


class TorchComm:
    def all_reduce(self, x, group=None):
        dist.all_reduce(x, group=group)
        return x

    def all_gather(self, x, dim, group=None):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    def reduce_scatter(self, x, dim, group=None):
        parts = [c.contiguous() for c in x.chunk(dist.get_world_size(group), dim=dim)]
        out = torch.empty_like(parts[0])
        dist.reduce_scatter(out, parts, group=group)
        return out


class TracedComm:
    def __init__(self, inner: Comm):
        self.inner = inner
        self.calls = 0

    def all_reduce(self, x, group=None):
        self.calls += 1
        return self.inner.all_reduce(x, group)

    def all_gather(self, x, dim, group=None):
        self.calls += 1
        return self.inner.all_gather(x, dim, group)

    def reduce_scatter(self, x, dim, group=None):
        self.calls += 1
        return self.inner.reduce_scatter(x, dim, group)


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, comm: Comm):
        ctx.group, ctx.comm = group, comm
        return x

    @staticmethod
    def backward(ctx, grad):
        return ctx.comm.all_reduce(grad.contiguous(), ctx.group), None, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, comm: Comm):
        return comm.all_reduce(x.clone(), group)

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, comm: Comm):
        ctx.group, ctx.comm = group, comm
        return comm.all_gather(x, 1, group)

    @staticmethod
    def backward(ctx, grad):
        return ctx.comm.reduce_scatter(grad, 1, ctx.group), None, None


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, comm: Comm):
        ctx.group, ctx.comm = group, comm
        return comm.reduce_scatter(x, 1, group)

    @staticmethod
    def backward(ctx, grad):
        return ctx.comm.all_gather(grad, 1, ctx.group), None, None


class Column(nn.Module):
    def __init__(self, n_in, n_out, group, comm: Comm, sp: bool = False):
        super().__init__()
        self.group, self.comm, self.sp = group, comm, sp
        self.weight = nn.Parameter(torch.empty(n_out // dist.get_world_size(group), n_in))

    def forward(self, x):
        x = Gather.apply(x, self.group, self.comm) if self.sp else Copy.apply(x, self.group, self.comm)
        return F.linear(x, self.weight)


class Row(nn.Module):
    def __init__(self, n_in, n_out, group, comm: Comm, sp: bool = False):
        super().__init__()
        self.group, self.comm, self.sp = group, comm, sp
        self.weight = nn.Parameter(torch.empty(n_out, n_in // dist.get_world_size(group)))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        y = F.linear(x, self.weight)
        y = Scatter.apply(y, self.group, self.comm) if self.sp else Reduce.apply(y, self.group, self.comm)
        return y if self.sp else y + self.bias


class Mlp(nn.Module):
    def __init__(self, n, group, comm: Comm, sp: bool = False):
        super().__init__()
        self.up, self.down = Column(n, 4 * n, group, comm, sp), Row(4 * n, n, group, comm, sp)

    def forward(self, x):
        return x + self.down(F.silu(self.up(x)))

