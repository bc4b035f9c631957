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
        parts = [torch.empty_like(grad) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, grad.contiguous(), group=ctx.group)
        return torch.cat(parts, dim=1), None


class Patchify(nn.Module):
    def __init__(self, in_dim, dim, sp_group):
        super().__init__()
        self.proj = nn.Linear(in_dim, dim)  # every rank embeds the whole sequence
        self.sp_group = sp_group

    def forward(self, patches):
        # patches: [batch, seq, in_dim], the same on all sequence-parallel ranks
        return SliceSequence.apply(self.proj(patches), self.sp_group)
