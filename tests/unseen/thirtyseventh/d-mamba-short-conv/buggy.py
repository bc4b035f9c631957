# thread: https://github.com/state-spaces/mamba/issues/597
"""Gated short convolution on sequences divided over a context-parallel group."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def neighbour(group, step):
    rank = dist.get_rank(group) + step
    if 0 <= rank < dist.get_world_size(group):
        return dist.get_global_rank(group, rank)
    return None


def shift(tensor, group, step):
    """Sends along the chain by step (+1 or -1); the first receiver gets zeros."""
    received = torch.zeros_like(tensor)
    dst, src = neighbour(group, step), neighbour(group, -step)
    ops = []
    if dst is not None:
        ops.append(dist.P2POp(dist.isend, tensor.contiguous(), dst, group))
    if src is not None:
        ops.append(dist.P2POp(dist.irecv, received, src, group))
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    return received


class PreviousTail(torch.autograd.Function):
    """The last columns of the preceding rank's chunk."""

    @staticmethod
    def forward(ctx, tail, group):
        ctx.group = group
        return shift(tail, group, +1)

    @staticmethod
    def backward(ctx, grad):
        return grad, None  # BUG


class ShortConv(nn.Module):
    """x: [batch, tokens of this rank, dim]; consecutive chunks in rank order."""

    def __init__(self, dim, width, cp_group):
        super().__init__()
        self.width, self.group = width, cp_group
        self.in_proj = nn.Linear(dim, 3 * dim, bias=False)
        self.conv = nn.Conv1d(dim, dim, width, groups=dim, bias=False)
        self.out_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, c, v = self.in_proj(x).transpose(1, 2).chunk(3, dim=1)
        h = b * v
        tail = h[..., h.shape[-1] - (self.width - 1) :].contiguous()
        h = torch.cat([PreviousTail.apply(tail, self.group), h], dim=-1)
        return self.out_proj((c * self.conv(h)).transpose(1, 2))


class Block(nn.Module):
    def __init__(self, dim, width, cp_group):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mixer = ShortConv(dim, width, cp_group)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def train_step(model, ids, labels, optimizer, dp_cp_group):
    """Labels were shifted before the sequence was cut; -100 marks no target."""
    count = (labels != -100).sum().float()
    dist.all_reduce(count, group=dp_cp_group)
    loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), reduction="sum") / count
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=dp_cp_group)
    optimizer.step()
    optimizer.zero_grad()
