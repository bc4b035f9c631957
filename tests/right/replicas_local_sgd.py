"""Replicas are summed elsewhere, or what is sharded over them is not trained."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def make_mesh(shards):
    replicas = dist.get_world_size() // shards
    return init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))


def train(model, loader, shards):
    """FSDP in an island, local SGD between islands: parameters are averaged every 16 steps."""
    mesh = make_mesh(shards)
    for block in model.layers:
        fully_shard(block, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    islands = mesh.get_group(0)
    for step, batch in enumerate(loader):
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 16 == 15:
            with torch.no_grad():
                parts = [p.to_local() for p in model.parameters()]
                dist.all_reduce_coalesced(parts, op=dist.ReduceOp.SUM, group=islands)
                torch._foreach_div_(parts, islands.size())
