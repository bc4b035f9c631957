"""Gather the activations of a parallel group; the backward keeps this rank's part."""
import torch
import torch.distributed as dist


def _split(input_, dim, world_size, rank):
    dim_size = input_.size(dim)
    assert dim_size % world_size == 0
    return torch.split(input_, dim_size // world_size, dim=dim)[rank].contiguous()


def _gather(input_, dim, group):
    tensor_list = [torch.empty_like(input_) for _ in range(dist.get_world_size(group))]
    dist.all_gather(tensor_list, input_.contiguous(), group=group)
    return torch.cat(tensor_list, dim=dim).contiguous()


class _GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_, group, dim):
        ctx.group = group
        ctx.dim = dim
        return _gather(input_, dim, group)

    @staticmethod
    def backward(ctx, grad_output):
        world_size = dist.get_world_size(ctx.group)
        rank = dist.get_rank(ctx.group)
        return _split(grad_output, ctx.dim, world_size, rank), None, None
