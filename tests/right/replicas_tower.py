"""Replicas are summed elsewhere, or what is sharded over them is not trained."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def meshes(shards):
    replicas = dist.get_world_size() // shards
    mesh = init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("dp_replicate", "dp_shard"))
    return mesh, mesh["dp_replicate", "dp_shard"]


def shard(model, mesh, hsdp):
    """The vision tower is frozen: it is only sharded, within a node."""
    model.tower.requires_grad_(False)
    fully_shard(model.tower, mesh=mesh["dp_shard"])
    for block in model.layers:
        fully_shard(block, mesh=hsdp)
    return fully_shard(model, mesh=hsdp)
