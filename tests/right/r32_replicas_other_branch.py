"""What has replicas alone goes another way."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model, mesh):
    over = mesh["dp_shard"]
    if over.size() > 1 and mesh["dp_replicate"].size() == 1:
        fully_shard(model, mesh=over)
    elif over.size() > 1 or mesh["dp_replicate"].size() > 1:
        fully_shard(model, mesh=mesh["dp_replicate", "dp_shard"])
