import torch
from torch.distributed.tensor import DTensor


def clip_whole_only(params, max_norm):
    """Those that are split are clipped by `torch.nn.utils.clip_grad_norm_`; here the replicated rest."""
    total = torch.zeros((), device="cuda")
    rest = [p for p in params if not (isinstance(p.grad, DTensor) and any(q.is_shard() for q in p.grad.placements))]
    for p in rest:
        if isinstance(p.grad, DTensor):
            total += p.grad.to_local().pow(2).sum()
        else:
            total += p.grad.pow(2).sum()
    norm = total.sqrt()
    for p in rest:
        p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
