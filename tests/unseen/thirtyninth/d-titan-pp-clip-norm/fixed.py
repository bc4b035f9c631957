"""Trainer with pipeline parallelism: clip gradients before the optimizer step."""
import math

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
    if pp_mesh is not None:
        if math.isinf(norm_type):
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=pp_mesh.get_group())
        else:
            total_norm = total_norm**norm_type
            dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=pp_mesh.get_group())
            total_norm = total_norm ** (1.0 / norm_type)
    if math.isnan(total_norm.item()):
        raise RuntimeError("the gradient norm is nan")
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=foreach)
    return total_norm


class Trainer:
    def __init__(self, job_config, world_mesh, model_parts, pp_schedule, optimizers):
        # model_parts: the chunks of this pipeline stage, sharded with fully_shard
        self.job_config, self.world_mesh = job_config, world_mesh
        self.model_parts, self.pp_schedule, self.optimizers = model_parts, pp_schedule, optimizers
        self.pp_mesh = world_mesh["pp"]
        self.has_first = self.pp_mesh.get_local_rank() == 0
        self.has_last = self.pp_mesh.get_local_rank() == self.pp_mesh.size() - 1

    def train_step(self, input_ids, labels):
        for opt in self.optimizers:
            opt.zero_grad()
        targets, losses = (labels, []) if self.has_last else (None, None)
        if self.has_first:
            self.pp_schedule.step(input_ids, target=targets, losses=losses)
        else:
            self.pp_schedule.step(target=targets, losses=losses)
        grad_norm = clip_grad_norm_(
            [p for m in self.model_parts for p in m.parameters()],
            self.job_config.training.max_norm,
            pp_mesh=self.pp_mesh,
            foreach=True,
        )
        for opt in self.optimizers:
            opt.step()
        loss = torch.stack(losses).mean() if self.has_last else None
        return loss, grad_norm
