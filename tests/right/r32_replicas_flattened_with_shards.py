"""The dim of shards is made of both: every rank has its own part."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def build(replicate, shard, tp):
    mesh = init_device_mesh("cuda", (replicate, shard, tp), mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
    mesh["dp_replicate", "dp_shard"]._flatten("all_shard")
    return mesh


def shard(model, mesh):
    over = mesh["all_shard"]
    if over.size() > 1 or mesh["dp_replicate"].size() > 1:
        fully_shard(model, mesh=over)
