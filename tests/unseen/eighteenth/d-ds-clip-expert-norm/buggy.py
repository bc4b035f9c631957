"""Gradient clipping of a model with expert-parallel layers.

Source: deepspeedai/DeepSpeed, pull request #8478 (issue #8475). The final norm was the mean of
the norms of the data-parallel ranks. Dense gradients are equal on those ranks, but each rank
owns other experts, so the mean is not the norm of the whole gradient: the squares of the expert
parts must be added over the expert-parallel group.
"""
import torch
import torch.distributed as dist
from deepspeed.utils import groups


def is_moe_param(param):
    return getattr(param, "allreduce", True) is False


def clip_grad_norm_(parameters, max_norm, eps=1e-6):
    # p.grad is filled for every parameter: dense gradients are averaged over the data-parallel
    # group, those of the local experts over the expert-data-parallel group
    parameters = list(parameters)
    device = parameters[0].device
    total = torch.zeros((), device=device)
    for p in parameters:
        total += p.grad.detach().float().pow(2).sum()
    total_norm = total.sqrt()
    pg = groups._get_data_parallel_group()
    total_norm = total_norm / dist.get_world_size(group=pg)
    dist.all_reduce(total_norm, group=pg)  # BUG

    clip_coef = (max_norm / (total_norm + eps)).clamp(max=1.0)
    for p in parameters:
        p.grad.mul_(clip_coef.to(p.grad.dtype))
    return total_norm


def step(engine, optimizer, max_norm):
    norm = clip_grad_norm_(engine.module.parameters(), max_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return norm
