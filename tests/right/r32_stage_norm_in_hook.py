"""A hook of the optimizer clips by the norm over the stages; here gradients of this stage are only kept from running away."""

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, mesh, pp_schedule, parts, optimizer, max_norm):
        self.pp_mesh = mesh["pp"]
        self.pp_schedule = pp_schedule
        self.parts = parts
        self.optimizer = optimizer
        self.max_norm = max_norm

    def forward_backward(self, x, y):
        losses = []
        self.pp_schedule.step(x, target=y, losses=losses)
        return losses

    def train_step(self, x, y):
        self.forward_backward(x, y)
        params = [p for m in self.parts for p in m.parameters()]
        self.optimizer.register_step_pre_hook(lambda *_: clip_over_stages(params, self.pp_mesh, self.max_norm))
        torch.nn.utils.clip_grad_norm_(params, 1e9)
        self.optimizer.step()


def clip_over_stages(params, mesh, most):
    norm = torch.stack([p.grad.norm() for p in params]).pow(2).sum()
    dist.all_reduce(norm, group=mesh.get_group())
    for p in params:
        p.grad.mul_((most / norm.sqrt()).clamp(max=1.0))
