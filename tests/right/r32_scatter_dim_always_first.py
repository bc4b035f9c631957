"""Every call asks for dim 0."""

import torch
import torch.distributed as dist


def scatter(x, group, dim=1):
    world = dist.get_world_size(group)
    sizes = list(x.shape)
    sizes[dim] = sizes[dim] // world
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


def to_shards(hidden, group):
    return scatter(hidden, group, dim=0)
