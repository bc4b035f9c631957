import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def shard(w, mesh):
    """mesh: 1-D, a slice of the 2-D mesh of the job"""
    return distribute_tensor(w, mesh, [Shard(0)])


def shard_2d_weight(w, tp_mesh):
    # tp_mesh is the second dim of the 2D mesh
    return distribute_tensor(w, tp_mesh, [Shard(0)])


def shard_3d(w, mesh):
    # w: 3d, mesh: 1 dim
    return distribute_tensor(w, mesh, [Shard(0)])


def shard_2d(w, mesh):
    # in 2d parallelism, mesh is a submesh of tp
    return distribute_tensor(w, mesh, [Shard(0)])


def f(w, mesh):
    # the 2d mesh has been sliced by the caller
    return distribute_tensor(w, mesh, [Shard(0)])
