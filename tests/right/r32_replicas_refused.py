"""A job with replicas is refused."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model, mesh):
    if mesh["dp_replicate"].size() > 1:
        raise ValueError("dp_replicate is not supported")
    over = mesh["dp_shard_cp"]
    if over.size() > 1 or mesh["dp_replicate"].size() > 1:
        fully_shard(model, mesh=over)
