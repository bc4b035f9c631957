"""Norm of the gradients of a model split over TP and PP."""
import torch
from megatron.core import parallel_state


def clip_grad_norm(params, max_norm):
    total = torch.zeros(1, device="cuda")
    tp_rank = parallel_state.get_tensor_model_parallel_rank()
    for p in params:
        if getattr(p, "tensor_model_parallel", False) or tp_rank == 0:
            total += p.main_grad.float().norm(2) ** 2
    # parameters are cut over TP, layers over PP
    torch.distributed.all_reduce(total, group=parallel_state.get_model_parallel_group())
    norm = total.item() ** 0.5
    coef = max_norm / (norm + 1e-6)
    if coef < 1.0:
        for p in params:
            p.main_grad.mul_(coef)
    return norm
