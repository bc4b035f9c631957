import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def clip(params, max_norm, group):
    grads = [p.grad for p in params]
    norm = torch.norm(torch.stack([torch.norm(g) for g in grads]))
    norm.square_()
    dist.all_reduce(norm, group=group)
    norm.sqrt_()
    torch._foreach_mul_(grads, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
