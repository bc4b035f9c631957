"""placements are appended dim by dim."""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def shard(weight):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
    placements = [Replicate()]
    placements.append(Shard(0))
    return distribute_tensor(weight, mesh, placements)
