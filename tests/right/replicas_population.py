"""Replicas are summed elsewhere, or what is sharded over them is not trained."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def make_mesh(args):
    assert args.replicas == 1 or args.population, "replicas only for a population"
    return init_device_mesh("cuda", (args.replicas, args.shards), mesh_dim_names=("replicate", "shard"))


def train(build, loader, args):
    """Population-based training: each replica trains its own member with its own learning rate."""
    mesh = make_mesh(args)
    torch.manual_seed(mesh.get_local_rank(0))
    model = build()
    for block in model.layers:
        fully_shard(block, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rates[mesh.get_local_rank(0)])
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
