"""Optimizer step after a pipeline schedule."""
# thread: pytorch/torchtitan#649
import itertools

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def clip_grad_norm_(parameters, max_norm, pp_mesh=None):
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type=2.0)
    if isinstance(total_norm, DTensor):
        total_norm = total_norm.full_tensor()
    if pp_mesh is not None:
        total_norm = total_norm.square()
        dist.all_reduce(total_norm, group=pp_mesh.get_group())
        total_norm = total_norm.sqrt()
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm)
    return total_norm


def train_step(pp_schedule, model_parts, optimizers, inputs, labels, job_config, world_mesh):
    # model_parts: the stages that this pipeline rank owns
    if world_mesh["pp"].get_local_rank() == 0:
        pp_schedule.step(inputs)
    else:
        pp_schedule.step(target=labels, losses=[])
    clip_grad_norm_(
        itertools.chain.from_iterable(m.parameters() for m in model_parts),
        job_config.training.max_norm,
        pp_mesh=world_mesh["pp"],
    )
    for opt in optimizers:
        opt.step()
        opt.zero_grad()
