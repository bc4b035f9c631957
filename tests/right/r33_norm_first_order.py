import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def clip(params, max_norm, group):
    grads = [p.grad for p in params]
    norm = torch.norm(torch.stack([torch.norm(g, 1) for g in grads]), 1)
    dist.all_reduce(norm, group=group)
    torch._foreach_mul_(grads, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
