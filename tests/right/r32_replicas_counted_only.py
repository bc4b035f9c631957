"""The number of replicas is told, and the mesh is one of shards in a job that has none."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model, mesh, log):
    over = mesh["dp_shard"]
    if over.size() > 1:
        fully_shard(model, mesh=over)
    log.info("replicas: %d", mesh["dp_replicate"].size())
