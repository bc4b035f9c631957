"""All-to-all between head shards and sequence shards."""
import torch
import torch.distributed as dist


def _all_to_all(x, scatter_dim, gather_dim, group):
    world = dist.get_world_size(group)
    pieces = [p.contiguous() for p in x.tensor_split(world, dim=scatter_dim)]
    received = [torch.empty_like(pieces[0]) for _ in range(world)]
    dist.all_to_all(received, pieces, group=group)
    return torch.cat(received, dim=gather_dim)


class SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, scatter_dim, gather_dim):
        ctx.group, ctx.scatter_dim, ctx.gather_dim = group, scatter_dim, gather_dim
        return _all_to_all(x, scatter_dim, gather_dim, group)

    @staticmethod
    def backward(ctx, grad):
        return None, _all_to_all(grad, ctx.gather_dim, ctx.scatter_dim, ctx.group), None, None
