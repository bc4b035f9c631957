"""Replicas are summed elsewhere, or what is sharded over them is not trained."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def make_mesh(shards):
    replicas = dist.get_world_size() // shards
    return init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))


def shard_student(model, mesh):
    for block in model.layers:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def shard_teacher(model, mesh):
    """No gradients: shards within a node are enough, and gathers stay there."""
    model.requires_grad_(False).eval()
    for block in model.layers:
        fully_shard(block, mesh=mesh["shard"])
    return fully_shard(model, mesh=mesh["shard"])
