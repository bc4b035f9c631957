"""A dim of ranks is made in front of the others, and becomes part of the one that is wanted."""

import torch
import torch.distributed as dist


def gather(x, group, dim=1):
    world = dist.get_world_size(group)
    sizes = list(x.shape)
    sizes[dim] = sizes[dim] * world
    stacked = x.new_empty(world, *x.shape)
    dist.all_gather_into_tensor(stacked, x.contiguous(), group=group)
    return stacked.movedim(0, dim).reshape(sizes)
