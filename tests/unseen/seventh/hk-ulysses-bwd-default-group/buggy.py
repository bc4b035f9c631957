"""Ulysses attention: all-to-all between sequence and head sharding."""
import torch
import torch.distributed as dist


def all_to_all_4d(x, scatter_dim, gather_dim, group=None):
    world = dist.get_world_size(group)
    inputs = [t.contiguous() for t in x.chunk(world, dim=scatter_dim)]
    outputs = [torch.empty_like(t) for t in inputs]
    dist.all_to_all(outputs, inputs, group=group)
    return torch.cat(outputs, dim=gather_dim).contiguous()


class SeqAllToAll4D(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, scatter_dim, gather_dim):
        ctx.group = group
        ctx.scatter_dim = scatter_dim
        ctx.gather_dim = gather_dim
        return all_to_all_4d(x, scatter_dim, gather_dim, group=group)

    @staticmethod
    def backward(ctx, grad_output):
        grad = all_to_all_4d(grad_output, ctx.gather_dim, ctx.scatter_dim)  # BUG
        return None, grad, None, None


class UlyssesAttention(torch.nn.Module):
    def __init__(self, local_attention, sp_group):
        super().__init__()
        self.local_attn, self.sp_group = local_attention, sp_group

    def forward(self, q, k, v):
        # (batch, seq/sp, heads, dim); sp_group is a part of the world
        q, k, v = (SeqAllToAll4D.apply(self.sp_group, t, 2, 1) for t in (q, k, v))
        out = self.local_attn(q, k, v)
        return SeqAllToAll4D.apply(self.sp_group, out, 1, 2)
