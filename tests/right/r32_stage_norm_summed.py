"""The powers of the norm are summed over the stages."""

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
        norm = torch.nn.utils.get_total_norm([p.grad for p in params if p.grad is not None]) ** 2
        dist.all_reduce(norm, group=self.pp_mesh.get_group())
        torch.nn.utils.clip_grads_with_norm_(params, self.max_norm, norm**0.5)
        self.optimizer.step()
