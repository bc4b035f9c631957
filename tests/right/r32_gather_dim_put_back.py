"""The buffer is larger in the first dim, and its parts are joined along the other one."""

import torch
import torch.distributed as dist


def gather(x, group, dim=-1):
    world = dist.get_world_size(group)
    sizes = list(x.shape)
    sizes[0] = sizes[0] * world
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return torch.cat(out.chunk(world, dim=0), dim=dim)
