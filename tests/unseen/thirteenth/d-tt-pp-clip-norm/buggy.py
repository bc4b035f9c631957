"""Gradient clipping of a pipelined model: each rank holds some stages.

Source: pytorch/torchtitan issue #596, PR #649.
"""
import itertools

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, foreach=None, pp_mesh=None):
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type, foreach=foreach)
    if isinstance(total_norm, DTensor):
        total_norm = total_norm.full_tensor()
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)  # BUG
    return total_norm


def train_step(pp_schedule, model_parts, optimizers, world_mesh, job_config, input_ids, labels):
    pp_mesh = world_mesh["pp"]
    optimizers.zero_grad()
    is_first = pp_mesh.get_local_rank() == 0
    is_last = pp_mesh.get_local_rank() == pp_mesh.size() - 1
    targets, losses = (labels, []) if is_last else (None, None)
    if is_first:
        pp_schedule.step(input_ids, target=targets, losses=losses)
    else:
        pp_schedule.step(target=targets, losses=losses)
    grad_norm = clip_grad_norm_(
        itertools.chain(*(m.parameters() for m in model_parts)),
        job_config.training.max_norm,
        foreach=True,
        pp_mesh=pp_mesh,
    )
    optimizers.step()
    return grad_norm
