"""Gradient clipping of FSDP handles with different sharding strategies.

Source: https://github.com/pytorch/pytorch/pull/88955
"""
import math

import torch
import torch.distributed as dist


class Handle:
    def __init__(self, flat_param, uses_sharded_strategy):
        self.flat_param = flat_param
        self.uses_sharded_strategy = uses_sharded_strategy  # False with NO_SHARD


def _get_grad_norm(params, norm_type, device):
    grads = [p.grad for p in params if p.grad is not None]
    if not grads:
        return torch.zeros((), device=device)
    norms = [torch.linalg.vector_norm(g.detach(), norm_type, dtype=torch.float32) for g in grads]
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)


@torch.no_grad()
def clip_grad_norm_(handles, max_norm, process_group, device, norm_type=2.0):
    # after backward: shards of the averaged gradient, or the averaged gradient itself with NO_SHARD
    params = [h.flat_param for h in handles]
    local_norm = _get_grad_norm(params, norm_type, device)
    if math.isinf(norm_type):
        total_norm = local_norm
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=process_group)
    else:
        sharded = [h.flat_param for h in handles if h.uses_sharded_strategy]
        nonsharded = [h.flat_param for h in handles if not h.uses_sharded_strategy]
        total_norm = _get_grad_norm(sharded, norm_type, device) ** norm_type
        dist.all_reduce(total_norm, group=process_group)
        total_norm += _get_grad_norm(nonsharded, norm_type, device) ** norm_type
        total_norm = total_norm ** (1.0 / norm_type)
    clip_coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for p in params:
        if p.grad is not None:
            p.grad.mul_(clip_coef)
    return total_norm
