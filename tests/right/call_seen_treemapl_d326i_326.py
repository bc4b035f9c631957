# Right: both branches reduce, the largest entry by MAX and the powers by a sum; summed in place by tree_map with a lambda that calls dist.all_reduce.
import math
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map


def norm_of(grads, norm_type, group):
    if norm_type == math.inf:
        total_norm = max(g.abs().max() for g in grads)
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=group)
    else:
        total_norm = sum(g.norm(norm_type) ** norm_type for g in grads)
        tree_map(lambda t: dist.all_reduce(t, group=group), {"t": total_norm})
        total_norm = total_norm ** (1.0 / norm_type)
    return total_norm
