import math
import torch
import torch.distributed as dist


def norm_of(grads, norm_type, tp_group, pp_group, mp_group):
    """`mp_group` is the product of both."""
    if norm_type == math.inf:
        total_norm = torch.stack([g.abs().max() for g in grads]).max()
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=mp_group)
        return total_norm
    total_norm = sum(g.norm(norm_type) ** norm_type for g in grads)
    dist.all_reduce(total_norm, group=tp_group)
    dist.all_reduce(total_norm, group=pp_group)
    return total_norm ** (1.0 / norm_type)
