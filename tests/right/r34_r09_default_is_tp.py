import torch
import torch.distributed as dist

_TP_GROUP = None


def all_parts(x, group=None):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group or _TP_GROUP))]
    dist.all_gather(parts, x, group=group or _TP_GROUP)
    return torch.cat(parts)


def swap_layout(x, group):
    """group: the tensor-parallel one"""
    whole = all_parts(x).transpose(0, 1)
    pieces = whole.chunk(dist.get_world_size(group))
    return pieces[dist.get_rank(group)]
