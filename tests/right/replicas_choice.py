"""Replicas are summed elsewhere, or what is sharded over them is not trained."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def make_mesh(shards):
    replicas = dist.get_world_size() // shards
    return init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))


def shard(model, mesh):
    """HSDP where there are replicas, plain FSDP where there is one."""
    for block in model.layers:
        if mesh.size(0) > 1:
            fully_shard(block, mesh=mesh)
        else:
            fully_shard(block, mesh=mesh["shard"])
    if mesh.size(0) > 1:
        fully_shard(model, mesh=mesh)
    else:
        fully_shard(model, mesh=mesh["shard"])
    return model
