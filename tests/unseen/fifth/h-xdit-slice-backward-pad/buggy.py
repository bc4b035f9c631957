"""Split a replicated activation over the sequence-parallel group."""
import torch
import torch.distributed as dist
from torch import nn


class SliceSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        ctx.full, ctx.rank = x.shape[1], rank
        n = x.shape[1] // world
        return x[:, rank * n:(rank + 1) * n].contiguous()

    @staticmethod
    def backward(ctx, grad):
        n = grad.shape[1]
        full = grad.new_zeros(grad.shape[0], ctx.full, *grad.shape[2:])
        full[:, ctx.rank * n:(ctx.rank + 1) * n] = grad
        return full, None  # BUG: the other ranks' parts stay zero


class Patchify(nn.Module):
    def __init__(self, in_dim, dim, sp_group):
        super().__init__()
        self.proj = nn.Linear(in_dim, dim)  # every rank embeds the whole sequence
        self.sp_group = sp_group

    def forward(self, patches):
        # patches: [batch, seq, in_dim], the same on all sequence-parallel ranks
        return SliceSequence.apply(self.proj(patches), self.sp_group)
