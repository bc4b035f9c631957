"""the placement of the replicas is put in front."""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def shard(weight):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
    placements = [Shard(0)]
    placements.insert(0, Replicate())
    return distribute_tensor(weight, mesh, placements)
