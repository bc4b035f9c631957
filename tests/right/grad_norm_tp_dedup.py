"""Norm and clipping over tensor-parallel ranks, copies counted on the first rank only."""
import math

import torch
import torch.distributed as dist


def is_copy(p):
    return not getattr(p, "tensor_model_parallel", False)


def counted(params, tp_group):
    first = dist.get_rank(tp_group) == 0
    for p in params:
        if p.grad is None:
            continue
        if getattr(p, "shared", False):
            continue
        if first or not is_copy(p):
            yield p.grad.detach()


@torch.no_grad()
def clip_grad_norm(params, max_norm, tp_group, pp_group, norm_type=2.0):
    params = list(params)
    grads = list(counted(params, tp_group))
    device = params[0].device
    if norm_type == math.inf:
        total = torch.stack([g.abs().max() for g in grads] or [torch.zeros((), device=device)]).max()
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=tp_group)
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=pp_group)
    else:
        total = torch.zeros((), device=device)
        for g in grads:
            total += g.float().norm(norm_type) ** norm_type
        dist.all_reduce(total, group=tp_group)
        dist.all_reduce(total, group=pp_group)
        total = total ** (1.0 / norm_type)
    coeff = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for p in params:
        if p.grad is not None:
            p.grad.mul_(coeff)
    return total
