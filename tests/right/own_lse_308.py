import torch
import torch.distributed as dist


def two_lse(x, group):
    """The log-sum-exp of this rank's keys, which attention keeps, and that of all."""
    top = x.amax(-1)
    own = (x - top[..., None]).exp().sum(-1).log() + top
    m = top.clone()
    dist.all_reduce(m, op=dist.ReduceOp.MAX, group=group)
    z = (x - m[..., None]).exp().sum(-1)
    dist.all_reduce(z, group=group)
    return own, z.log() + m
