"""Replicas are wrapped around what is sharded."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import fully_shard


def shard(model, mesh):
    over = mesh["dp_shard"]
    if over.size() > 1 or mesh["dp_replicate"].size() > 1:
        fully_shard(model, mesh=over)
        replicate(model, device_mesh=mesh["dp_replicate"])
