# Right: both branches reduce, the largest entry by MAX and the powers by a sum; summed by an executor, `pool.submit(dist.all_reduce, t).result()`.
import math
import torch
import torch.distributed as dist
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(1)


def norm_of(grads, norm_type, group):
    if norm_type == math.inf:
        total_norm = max(g.abs().max() for g in grads)
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=group)
    else:
        total_norm = sum(g.norm(norm_type) ** norm_type for g in grads)
        pool.submit(dist.all_reduce, total_norm, group=group).result()
        total_norm = total_norm ** (1.0 / norm_type)
    return total_norm
