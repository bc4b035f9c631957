"""With replicas the mesh has both dims."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model, mesh):
    replicas = mesh["dp_replicate"].size() > 1
    over = mesh["dp_shard_cp"]
    if replicas:
        over = mesh["dp_replicate", "dp_shard_cp"]
    if over.size() > 1 or replicas:
        fully_shard(model, mesh=over)
