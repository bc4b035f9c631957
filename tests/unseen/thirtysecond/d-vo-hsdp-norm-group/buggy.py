"""Gradient clipping of FSDP2 models on local shards.
ByteDance-Seed/VeOmni #862, "correct FSDP2 grad norm reduction".
"""
import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from veomni.distributed.parallel_state import get_parallel_state


def _fsdp_reduce_group(ps):
    return ps.fsdp_group  # BUG


@torch.no_grad()
def _local_pth_sum(params, p, device):
    total = torch.zeros((), device=device, dtype=torch.float32)
    for q in params:
        g = q.grad.to_local() if isinstance(q.grad, DTensor) else q.grad
        total += torch.linalg.vector_norm(g.detach().float(), p).pow(p).to(device)
    return total


@torch.no_grad()
def _local_max(params, device):
    total = torch.zeros((), device=device, dtype=torch.float32)
    for q in params:
        g = q.grad.to_local() if isinstance(q.grad, DTensor) else q.grad
        if g.numel():
            total = torch.maximum(total, g.detach().abs().max().float().to(device))
    return total


@torch.no_grad()
def fsdp2_clip_grad_norm(model, max_norm, norm_type=2.0):
    """All parameters are fully_shard-ed on ps.fsdp_mesh: (dp_replicate, dp_shard_sp) or (dp_shard_sp,)."""
    ps = get_parallel_state()
    device = torch.device("cuda", torch.cuda.current_device())
    params = [p for p in model.parameters() if p.grad is not None]
    if math.isinf(norm_type):
        total_norm = _local_max(params, device)
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=_fsdp_reduce_group(ps))
    else:
        total = _local_pth_sum(params, norm_type, device)
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=_fsdp_reduce_group(ps))
        total_norm = total.pow(1.0 / norm_type)
    torch.nn.utils.clip_grads_with_norm_(params, max_norm, total_norm)
    return total_norm
