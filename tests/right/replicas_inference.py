"""Replicas are summed elsewhere, or what is sharded over them is not trained."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def make_mesh(shards):
    replicas = dist.get_world_size() // shards
    return init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))


@torch.no_grad()
def generate(model, prompts, shards):
    """Each replica answers prompts of its own."""
    mesh = make_mesh(shards)
    for block in model.layers:
        fully_shard(block, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    replica, replicas = mesh.get_local_rank(0), mesh.size(0)
    answers = [model(p).argmax(-1) for p in prompts[replica::replicas]]
    gathered = [None] * replicas
    dist.all_gather_object(gathered, answers, group=mesh.get_group(0))
    return gathered
