"""Merge two sequence-sharded streams before rank-local attention heads."""
import torch
import torch.distributed as dist
from torch import nn


class _GatherSum(torch.autograd.Function):
    """All-gather on dim; every rank feeds the result to its own heads."""

    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group, ctx.size = dim, group, x.size(dim)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad_output, group=ctx.group)
        rank = dist.get_rank(ctx.group)
        return grad_output.narrow(ctx.dim, rank * ctx.size, ctx.size), None, None


def gather_outputs(x, dim, group):
    return _GatherSum.apply(x, dim, group)


class VideoAttention(nn.Module):
    def __init__(self, dim, local_heads, head_dim, sp_group):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * local_heads * head_dim, bias=False)  # this rank's heads
        self.local_heads, self.head_dim, self.sp_group = local_heads, head_dim, sp_group

    def forward(self, latents, motion):
        # latents, motion: [b, s / sp, dim]
        x = gather_outputs(latents, 1, self.sp_group) + gather_outputs(motion, 1, self.sp_group)
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.local_heads, self.head_dim).unbind(2)
        out = nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        )
        return out.transpose(1, 2).flatten(2)
