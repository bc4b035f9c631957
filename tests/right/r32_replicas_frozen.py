"""What is sharded is a teacher that is not trained."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(teacher, mesh):
    teacher.requires_grad_(False)
    over = mesh["dp_shard"]
    if over.size() > 1 or mesh["dp_replicate"].size() > 1:
        fully_shard(teacher, mesh=over)
