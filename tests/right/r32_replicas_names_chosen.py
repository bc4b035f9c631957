"""The names of the dims are chosen by the size of the one of replicas."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model, mesh):
    replicas = mesh["dp_replicate"].size() > 1
    names = ("dp_replicate", "dp_shard_cp") if replicas else ("dp_shard_cp",)
    over = mesh[names]
    if mesh["dp_shard_cp"].size() > 1 or replicas:
        fully_shard(model, mesh=over)
