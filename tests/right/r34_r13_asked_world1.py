import torch
from torch.distributed.tensor import DTensor


def clip_on_one(params, max_norm, mesh):
    """A mesh of one rank: `to_local()` is all there is."""
    assert mesh.size() == 1
    total = torch.zeros((), device="cuda")
    for p in params:
        if isinstance(p.grad, DTensor):
            total += p.grad.to_local().pow(2).sum()
        else:
            total += p.grad.pow(2).sum()
    norm = total.sqrt()
    for p in params:
        p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
