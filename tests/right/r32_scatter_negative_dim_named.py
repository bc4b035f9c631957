"""A dim from the end is made one from the start, and moved to the front."""

import torch
import torch.distributed as dist


def scatter(x, group, dim=-1):
    if dim < 0:
        dim += x.dim()
    world = dist.get_world_size(group)
    turned = x.transpose(0, dim).contiguous()
    out = turned.new_empty(turned.size(0) // world, *turned.shape[1:])
    dist.reduce_scatter_tensor(out, turned, group=group)
    return out.transpose(0, dim)
