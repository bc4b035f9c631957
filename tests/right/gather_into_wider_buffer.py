"""Buffers of gathers whose rows are put where they belong."""
import torch
import torch.distributed as dist


def along_last(x, group):
    """The parts come along dim 0 and are put side by side."""
    world = dist.get_world_size(group)
    sizes = list(x.size())
    sizes[0] = sizes[0] * world
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return torch.cat(out.chunk(world, dim=0), dim=-1)


def as_blocks(x, group):
    """The buffer has the number of elements; its rows are read as blocks of the ranks."""
    world = dist.get_world_size(group)
    out = torch.empty(x.size(0), x.size(1) * world, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out.view(world, x.size(0), x.size(1)).transpose(0, 1).reshape(x.size(0), -1)


def moved(x, group):
    """The last dim goes first, and comes back."""
    world = dist.get_world_size(group)
    moved = x.movedim(-1, 0).contiguous()
    sizes = list(moved.size())
    sizes[0] *= world
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, moved, group=group)
    return out.movedim(0, -1)


def one_row(ids, group):
    """A batch of one packed sequence."""
    assert ids.size(0) == 1
    world = dist.get_world_size(group)
    out = ids.new_empty(ids.size(0), ids.size(1) * world)
    dist.all_gather_into_tensor(out, ids.contiguous(), group=group)
    return out
