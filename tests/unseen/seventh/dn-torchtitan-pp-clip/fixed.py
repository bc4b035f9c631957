"""Gradient clipping of a model cut into pipeline stages.

Source: https://github.com/pytorch/torchtitan/issues/596
"""
import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, foreach=None, pp_mesh=None):
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type, False, foreach)
    if isinstance(total_norm, DTensor):
        # over the FSDP and TP mesh of the parameters
        total_norm = total_norm.full_tensor()
    if pp_mesh is not None:
        if math.isinf(norm_type):
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=pp_mesh.get_group())
        else:
            total_norm **= norm_type
            dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=pp_mesh.get_group())
            total_norm **= 1.0 / norm_type
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)
    return total_norm


def train_step(pp_schedule, model_parts, optimizers, inputs, targets, world_mesh, max_norm):
    # model_parts: the pipeline stages of this rank
    if pp_schedule.has_first_stage:
        pp_schedule.step(inputs)
    elif pp_schedule.has_last_stage:
        pp_schedule.step(target=targets)
    else:
        pp_schedule.step()
    clip_grad_norm_(
        [p for m in model_parts for p in m.parameters()],
        max_norm,
        foreach=True,
        pp_mesh=world_mesh["pp"],
    )
    optimizers.step()
    optimizers.zero_grad()
