"""Mapping functions on the list forms of the collectives, with buffers, along any dim, and a gated layer."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

_GROUP = None


def initialize(size):
    global _GROUP
    world = dist.get_world_size()
    for start in range(0, world, size):
        ranks = list(range(start, start + size))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            _GROUP = group


def get_group():
    assert _GROUP is not None, "the group is not initialized"
    return _GROUP


def _all_gather(x, dim):
    x = x.contiguous()
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(get_group()))]
    parts[dist.get_rank(get_group())] = x
    dist.all_gather(parts, x, group=get_group())
    return torch.cat(parts, dim=dim).contiguous()


def _reduce_scatter(x, dim):
    parts = [part.contiguous() for part in x.chunk(dist.get_world_size(get_group()), dim=dim)]
    out = torch.empty_like(parts[dist.get_rank(get_group())])
    dist.reduce_scatter(out, parts, group=get_group())
    return out


def _split(x, dim):
    return x.chunk(dist.get_world_size(get_group()), dim=dim)[dist.get_rank(get_group())].contiguous()


def _all_reduce(x):
    work = dist.all_reduce(x, group=get_group(), async_op=True)
    work.wait()
    return x


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        return _all_gather(x, dim)

    @staticmethod
    def backward(ctx, grad):
        return _reduce_scatter(grad, ctx.dim), None


class ReduceScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        return _reduce_scatter(x, dim)

    @staticmethod
    def backward(ctx, grad):
        return _all_gather(grad, ctx.dim), None


class SplitSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        return _split(x, dim)

    @staticmethod
    def backward(ctx, grad):
        return _all_gather(grad, ctx.dim), None


class MergeSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        return _all_gather(x, dim)

    @staticmethod
    def backward(ctx, grad):
        return _split(grad, ctx.dim), None


class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return _all_reduce(grad.clone())


class GatedLayer(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        inner_per_rank = inner // dist.get_world_size(get_group())
        self.up = nn.Linear(hidden, 2 * inner_per_rank, bias=False)
        self.down = nn.Linear(inner_per_rank, hidden, bias=False)
        self.scale = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        full = GatherSequence.apply(x, 1)
        gate, value = self.up(full).chunk(2, dim=-1)
        out = ReduceScatterSequence.apply(self.down(F.silu(gate) * value), 1)
        # `scale` is applied to a part of the sequence: its gradient is summed over the ranks.
        return x + out * CopyToRanks.apply(self.scale)


class Model(nn.Module):
    def __init__(self, vocab, hidden, inner, depth):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.Sequential(*[GatedLayer(hidden, inner) for _ in range(depth)])
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, ids):
        x = SplitSequence.apply(self.embedding(ids), 1)
        x = MergeSequence.apply(self.layers(x), 1)
        return self.head(x)
