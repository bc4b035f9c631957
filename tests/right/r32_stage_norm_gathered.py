"""The norms of all stages are gathered, and each scales by the root of their squares."""

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
        norm = self.total_norm(params)
        torch.nn.utils.clip_grads_with_norm_(params, self.max_norm, norm)
        torch.nn.utils.clip_grad_norm_(params, self.max_norm * 2)
        self.optimizer.step()

    def total_norm(self, params):
        own = torch.nn.utils.get_total_norm([p.grad for p in params])
        norms = [torch.empty_like(own) for _ in range(self.pp_mesh.size())]
        dist.all_gather(norms, own, group=self.pp_mesh.get_group())
        return torch.stack(norms).norm()
