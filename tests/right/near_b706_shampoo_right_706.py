import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def right_precondition(g, r, group):
    """One-sided Shampoo: r = sum over all rows of g^T g, an (m, m) matrix that every rank has."""
    stat = g.T @ g
    dist.all_reduce(stat, group=group)
    r.add_(stat)
    vals, vecs = torch.linalg.eigh(r)
    return g @ (vecs * vals.clamp_min(1e-8).rsqrt()) @ vecs.T


def step(p, buf, r, lr):
    u = right_precondition(buf.to_local(), r, p.device_mesh.get_group())
    p.to_local().add_(u, alpha=-lr)


def build(model):
    for block in model.layers:
        fully_shard(block)
