from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def make_mesh(replicas, shards):
    if replicas != 1:
        raise NotImplementedError("replicas")
    return init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("dp_replicate", "dp_shard"))


def shard(model, mesh):
    for block in model.layers:
        fully_shard(block, mesh=mesh["dp_shard"])
    fully_shard(model, mesh=mesh["dp_shard"])


def train(model, batches, optimizer):
    for batch in batches:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
