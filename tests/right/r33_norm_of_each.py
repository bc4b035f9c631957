import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

def trust(params, lr):
    for p in params:
        g = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        rms = g.pow(2).mean().sqrt()
        g.div_(rms.clamp(min=1e-6))
