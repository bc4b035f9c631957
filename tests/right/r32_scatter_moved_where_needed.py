"""The dim is moved to the front where it is another one."""

import torch
import torch.distributed as dist


def scatter(x, group, dim=1):
    world = dist.get_world_size(group)
    if dim != 0:
        x = x.transpose(0, dim).contiguous()
    sizes = list(x.shape)
    sizes[0] = sizes[0] // world
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x, group=group)
    return out if dim == 0 else out.transpose(0, dim)
