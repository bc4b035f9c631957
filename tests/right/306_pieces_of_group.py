"""Pieces for the ranks of a group, and the collective over it."""
import torch
import torch.distributed as dist


def reduce_scatter(x, group):
    size = dist.get_world_size(group)
    pieces = [piece.contiguous() for piece in x.chunk(size, dim=0)]
    out = torch.empty_like(pieces[0])
    dist.reduce_scatter(out, pieces, group=group)
    return out


def reduce_scatter_all(x):
    pieces = list(x.chunk(dist.get_world_size(), dim=0))
    out = torch.empty_like(pieces[0])
    dist.reduce_scatter(out, pieces)
    return out
