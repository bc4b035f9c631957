"""Each rank owns blocks of elements, of which a list of sizes keeps the count in dim 1."""

import torch
import torch.distributed as dist


def scatter(blocks, group):
    world = dist.get_world_size(group)
    sizes = list(blocks.shape)
    sizes[1] = sizes[1] // world
    out = torch.empty(sizes, dtype=blocks.dtype, device=blocks.device)
    flat = blocks.transpose(0, 1).contiguous()
    dist.reduce_scatter_tensor(out.transpose(0, 1), flat, group=group)
    return out
