"""One branch is for jobs without a pipeline."""

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
        if self.pp_mesh.size() == 1:
            torch.nn.utils.clip_grad_norm_(params, self.max_norm)
        else:
            self.clip(params)
        self.optimizer.step()

    def clip(self, params):
        norm = torch.stack([p.grad.norm() for p in params]).pow(2).sum()
        dist.all_reduce(norm, group=self.pp_mesh.get_group())
        for p in params:
            p.grad.mul_((self.max_norm / norm.sqrt()).clamp(max=1.0))
