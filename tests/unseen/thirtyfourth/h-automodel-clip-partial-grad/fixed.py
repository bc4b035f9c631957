# NVIDIA-NeMo/Automodel, pull request 3477 - https://github.com/NVIDIA-NeMo/Automodel/pull/3477 (read)
# A replicated LoRA-A in front of a column-parallel LoRA-B accumulates a Partial gradient. The clipping
# helper takes the norm of the rank-local part and scales by a rank-dependent factor.
"""Clip gradients of a LoRA model under tensor parallelism (DTensor parameters)."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard


def _is_sharded(param):
    return isinstance(param, DTensor) and any(isinstance(p, Shard) for p in param.placements)


@torch.no_grad()
def clip_grad_norm(parameters, max_norm, tp_group):
    params = [p for p in parameters if p.grad is not None]
    sharded_sq = torch.zeros((), device="cuda")
    replicated_sq = torch.zeros((), device="cuda")
    for p in params:
        grad = p.grad
        if isinstance(grad, DTensor):
            if grad.placements != p.placements:
                p.grad = grad = grad.redistribute(placements=p.placements)
            grad = grad.to_local()
        sq = grad.float().pow(2).sum()
        if _is_sharded(p):
            sharded_sq += sq
        else:
            replicated_sq += sq
    dist.all_reduce(sharded_sq, group=tp_group)
    total_norm = (sharded_sq + replicated_sq).sqrt()
    coef = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for p in params:
        local = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        local.mul_(coef)
    return total_norm
