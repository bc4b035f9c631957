import torch
from torch.distributed.tensor import DTensor


def clip_whole(params, max_norm):
    total = torch.zeros((), device="cuda")
    for p in params:
        if isinstance(p.grad, DTensor):
            # only norms are distributed here, and replicated
            assert all(q.is_replicate() for q in p.grad.placements)
            total += p.grad.to_local().pow(2).sum()
        else:
            total += p.grad.pow(2).sum()
    norm = total.sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(scale)
    return norm
