# deepspeedai/DeepSpeed, issue 8475 / pull request 8478 - https://github.com/deepspeedai/DeepSpeed/pull/8478 (read)
# The clipping helper averages the norms of the data-parallel ranks. Experts differ between the ranks of an
# expert-parallel group: the mean of different norms is not the global norm.
"""Gradient clipping of a data-parallel model with expert parallelism (one expert group)."""
import deepspeed.comm as dist
import torch
from deepspeed.moe.utils import is_moe_param
from deepspeed.utils import groups


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm):
    # gradients have been reduced: dense ones over the data-parallel group,
    # those of an expert over the ranks that hold this expert
    params = [p for p in parameters if p.grad is not None]
    dense_sq = torch.zeros((), device=params[0].grad.device)
    expert_sq = torch.zeros((), device=params[0].grad.device)
    ep_name = None
    for p in params:
        sq = p.grad.float().pow(2).sum()
        if is_moe_param(p):
            expert_sq += sq
            ep_name = p.group_name
        else:
            dense_sq += sq
    if ep_name is not None:
        dist.all_reduce(expert_sq, group=groups._get_expert_parallel_group(ep_name))
    total_norm = (dense_sq + expert_sq).sqrt()

    clip_coef = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(clip_coef)
    return total_norm


def optimizer_step(model, optimizer, max_norm):
    norm = clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return norm
