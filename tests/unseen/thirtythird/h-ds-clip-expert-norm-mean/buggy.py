"""Gradient clipping of a model with expert parallelism (fp32 path).

Source: https://github.com/deepspeedai/DeepSpeed/pull/8478
Wrong: the per-rank norms are averaged over the data-parallel group. That is the global norm only
while all ranks hold the same gradients; expert gradients differ from rank to rank.
Repair: sum the squares of the experts over their expert-parallel group, then combine.
"""
import torch
from deepspeed import comm as dist
from deepspeed.moe.utils import is_moe_param
from deepspeed.utils import groups


def clip_grad_norm_(parameters, max_norm):
    parameters = list(parameters)
    device = parameters[0].device
    dense = torch.zeros((), device=device)
    experts = {p.group_name: torch.zeros((), device=device) for p in parameters if is_moe_param(p)}
    parameters = [p for p in parameters if p.grad is not None]
    for p in parameters:
        sq = p.grad.detach().float().pow(2).sum()
        if is_moe_param(p):
            experts[p.group_name] += sq
        else:
            dense = dense + sq

    total_norm = (dense + sum(experts.values())).sqrt()
    dp_group = groups._get_data_parallel_group()
    total_norm = total_norm / dist.get_world_size(group=dp_group)
    dist.all_reduce(total_norm, group=dp_group)  # BUG: mean of norms over ranks with other experts

    clip_coef = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for p in parameters:
        p.grad.detach().mul_(clip_coef)
    return total_norm
