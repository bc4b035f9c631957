"""placements are extended to the number of dims."""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def shard(weight):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("shard", "replicate"))
    placements = [Shard(0)]
    placements.extend([Replicate()] * (mesh.ndim - len(placements)))
    return distribute_tensor(weight, mesh, placements)


def one_dim(weight, two):
    if two:
        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
        placements = [Replicate(), Shard(0)]
    else:
        mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("shard",))
        placements = [Shard(0)]
    return distribute_tensor(weight, mesh, placements)
