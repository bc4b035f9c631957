# Reduced from VeOmni (ByteDance-Seed/VeOmni issue 184, read): clip_grad_norm with FSDP2 hybrid sharding.
# The mesh is (dp_replicate, dp_shard_sp): gradients are sharded along dp_shard_sp and equal
# along dp_replicate after the FSDP reduction.
# What happens: the norm is too large by dp_replicate ** (1 / p), gradients are over-clipped.
import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from veomni.distributed.parallel_state import get_parallel_state


def _local_pth_sum(params, p):
    total = torch.zeros((), dtype=torch.float32, device="cuda")
    for q in params:
        if q.grad is None:
            continue
        g = q.grad.to_local() if isinstance(q.grad, DTensor) else q.grad
        total += torch.norm(g.detach().to(torch.float32), p=p) ** p
    return total


@torch.no_grad()
def fsdp2_clip_grad_norm(model, max_norm, norm_type=2.0):
    ps = get_parallel_state()
    params = [p for p in model.parameters() if p.requires_grad]
    reduce_group = ps.device_mesh["dp_shard_sp"].get_group()

    if math.isinf(norm_type):
        grads = [p.grad.to_local().abs().max() for p in params if p.grad is not None]
        total = torch.stack(grads).max()
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=reduce_group)
        total_norm = total
    else:
        total = _local_pth_sum(params, norm_type)
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=reduce_group)
        total_norm = total ** (1.0 / norm_type)

    clip_coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for p in params:
        if p.grad is not None:
            p.grad.to_local().mul_(clip_coef)
    return total_norm
