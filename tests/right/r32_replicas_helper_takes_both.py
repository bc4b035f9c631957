"""The function that shards is given the whole mesh, and takes both dims."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def apply(model, mesh):
    fully_shard(model, mesh=mesh["dp_replicate", "dp_shard"])


def shard(model, mesh):
    if mesh["dp_shard"].size() > 1 or mesh["dp_replicate"].size() > 1:
        apply(model, mesh)
