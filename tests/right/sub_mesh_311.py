"""one placement for a slice of one dim, also where the whole mesh has two."""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def shard(weight):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
    mesh = mesh["shard"]
    return distribute_tensor(weight, mesh, [Shard(0)])


def shard_flat(weight):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
    flat = mesh._flatten("all")
    return distribute_tensor(weight, flat, [Shard(0)])


def shard_list(weight, local):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
    placements = [Shard(0)]
    placements.insert(0, Replicate())
    return distribute_tensor(weight, mesh, placements), DTensor.from_local(local, mesh, (Replicate(), *[Shard(1)]))
