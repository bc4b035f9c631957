import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def own_norm(params, max_norm, tp_group):
    total = torch.zeros((), device="cuda")
    for p in params:
        if p.grad is None:
            continue
        if isinstance(p.grad, DTensor):
            total += p.grad.to_local().float().pow(2).sum()
        else:
            total += p.grad.float().pow(2).sum() / dist.get_world_size(tp_group)
    return total.sqrt()


def clip(params, max_norm, tp_group):
    own = own_norm(params, max_norm, tp_group)
    total = own**2
    dist.all_reduce(total, group=tp_group)
    norm = total.sqrt()
    coef = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for p in params:
        p.grad.mul_(coef)
    return norm
