import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def orthogonalized(g, group):
    """g: this rank's columns (Shard(1)); products over columns are summed."""
    sq = g.square().sum()
    dist.all_reduce(sq, group=group)
    x = g / (sq.sqrt() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        dist.all_reduce(a, group=group)
        x = 1.5 * x - 0.5 * a @ x
    return x


def step(p, buf, lr):
    u = orthogonalized(buf.to_local(), p.device_mesh.get_group())
    p.to_local().add_(u, alpha=-lr)


def build(model, shard_dim):
    for block in model.layers:
        fully_shard(block, shard_placement_fn=shard_dim)
