import torch
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def place(w, mesh):
    # mesh is 1-D or 2-D; w is 2d
    return distribute_tensor(w, mesh, [Replicate()] * mesh.ndim)


def rows(w, mesh):
    # mesh: (4,), over the 2d weight
    return distribute_tensor(w, mesh, [Shard(0)])


def from_2d(w, mesh):
    """Takes the rows of the 2d mesh: mesh is one of its dims."""
    # mesh is 1 of the dims of the 2d mesh
    return distribute_tensor(w, mesh, [Shard(0)])
