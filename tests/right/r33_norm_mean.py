import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def clip(params, group, max_norm):
    grads = [p.grad for p in params]
    norm = torch.norm(torch.stack([torch.norm(g) for g in grads]))
    dist.all_reduce(norm, group=group)
    mean = norm / dist.get_world_size(group)
    torch._foreach_mul_(grads, torch.clamp(max_norm / (mean + 1e-6), max=1.0))
