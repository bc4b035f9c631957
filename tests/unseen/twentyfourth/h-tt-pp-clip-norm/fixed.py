"""Gradient clipping in the training loop.

After pytorch/torchtitan issue #596 and PR #649 (torchtitan/utils.py `clip_grad_norm_`, train.py).
"""
import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, pp_mesh=None):
    """Clip by the norm of the gradients of all parameters of the model.

    Gradients sharded over the FSDP and TP dimensions are DTensors, so their norm is reduced
    over those dimensions by ``full_tensor``. ``pp_mesh`` is None without pipeline parallelism.
    """
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type)
    if isinstance(total_norm, DTensor):
        total_norm = total_norm.full_tensor()

    if pp_mesh is not None:
        if math.isinf(norm_type):
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=pp_mesh.get_group())
        else:
            total_norm = total_norm ** norm_type
            dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=pp_mesh.get_group())
            total_norm = total_norm ** (1.0 / norm_type)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm)
    return total_norm


class Trainer:
    def __init__(self, model_parts, pp_schedule, optimizers, world_mesh, parallel_dims, max_norm):
        self.model_parts, self.pp_schedule = model_parts, pp_schedule
        self.optimizers, self.max_norm = optimizers, max_norm
        self.pp_mesh = world_mesh["pp"] if parallel_dims.pp_enabled else None
        self.has_first = pp_schedule is None or self.pp_mesh.get_local_rank() == 0
        self.has_last = pp_schedule is None or self.pp_mesh.get_local_rank() == self.pp_mesh.size() - 1

    def forward_backward(self, inputs, labels, loss_fn):
        if self.pp_schedule is None:
            loss = loss_fn(self.model_parts[0](inputs), labels)
            loss.backward()
            return loss.detach()
        targets, losses = (labels, []) if self.has_last else (None, None)
        if self.has_first:
            self.pp_schedule.step(inputs, target=targets, losses=losses)
        else:
            self.pp_schedule.step(target=targets, losses=losses)
        return torch.stack(losses).mean().detach() if self.has_last else None

    def train_step(self, inputs, labels, loss_fn):
        for opt in self.optimizers:
            opt.zero_grad()
        loss = self.forward_backward(inputs, labels, loss_fn)
        grad_norm = clip_grad_norm_(
            [p for m in self.model_parts for p in m.parameters()],
            self.max_norm,
            pp_mesh=self.pp_mesh,
        )
        for opt in self.optimizers:
            opt.step()
        return loss, grad_norm
