"""Optimizer step of a pipeline-parallel trainer.
pytorch/torchtitan #649, "Fix PP clip_grad_norm".
"""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


class Trainer:
    def __init__(self, job_config, world_mesh, parallel_dims, pp_schedule, model_parts, loss_fn, optimizers, lr_schedulers):
        self.job_config, self.parallel_dims = job_config, parallel_dims
        self.pp_mesh = world_mesh["pp"] if parallel_dims.pp_enabled else None
        self.pp_schedule, self.model_parts, self.loss_fn = pp_schedule, model_parts, loss_fn
        self.optimizers, self.lr_schedulers = optimizers, lr_schedulers

    def forward_backward(self, input_ids, labels):
        if self.pp_mesh is None:
            loss = self.loss_fn(self.model_parts[0](input_ids), labels)
            loss.backward()
            return loss
        rank, size = self.pp_mesh.get_local_rank(), self.pp_mesh.size()
        losses = [] if rank == size - 1 else None
        args = (input_ids,) if rank == 0 else ()
        self.pp_schedule.step(*args, target=labels if rank == size - 1 else None, losses=losses)
        return torch.mean(torch.stack(losses)) if losses else torch.tensor(-1.0)

    def train_step(self, input_ids, labels):
        self.optimizers.zero_grad()
        loss = self.forward_backward(input_ids, labels)
        params = [p for m in self.model_parts for p in m.parameters()]
        grad_norm = torch.nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
        if isinstance(grad_norm, DTensor):
            grad_norm = grad_norm.full_tensor()
        if self.pp_mesh is not None:
            grad_norm = grad_norm**2
            dist.all_reduce(grad_norm, op=dist.ReduceOp.SUM, group=self.pp_mesh.get_group())
            grad_norm = grad_norm**0.5
        torch.nn.utils.clip_grads_with_norm_(params, self.job_config.training.max_norm, grad_norm)
        self.optimizers.step()
        self.lr_schedulers.step()
        return loss, grad_norm
