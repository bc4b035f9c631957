"""An assertion refuses any other dim than the first."""

import torch
import torch.distributed as dist


def scatter(x, group, dim=1):
    assert dim == 0, "only along the first dim"
    world = dist.get_world_size(group)
    sizes = list(x.shape)
    sizes[dim] = sizes[dim] // world
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out
