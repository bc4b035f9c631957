"""Gradients are reduced in buckets while the backward pass goes on; another method waits for the handles and puts the sums back."""

import torch
from deepspeed import comm as dist


class OverlappedBuckets:
    def __init__(self, params, dp_group, limit):
        self.params = [p for p in params if p.requires_grad]
        self.dp_group, self.limit = dp_group, limit
        self.world = dist.get_world_size(group=dp_group)
        self.waiting, self.in_flight = [], []
        self.count = 0
        for param in self.params:
            param.register_post_accumulate_grad_hook(self._on_ready)

    def _on_ready(self, param):
        self.waiting.append(param)
        self.count += param.numel()
        if self.count >= self.limit:
            self._launch()

    def _launch(self):
        if not self.waiting:
            return
        flat = torch.cat([p.grad.reshape(-1).float() for p in self.waiting])
        flat.div_(self.world)
        handle = dist.all_reduce(flat, group=self.dp_group, async_op=True)
        self.in_flight.append((handle, flat, self.waiting))
        self.waiting, self.count = [], 0

    def synchronize(self):
        self._launch()
        for handle, flat, params in self.in_flight:
            handle.wait()
            offset = 0
            for param in params:
                part = flat.narrow(0, offset, param.numel())
                param.grad.copy_(part.view_as(param.grad))
                offset += param.numel()
        self.in_flight.clear()

    @torch.no_grad()
    def global_norm(self):
        """After `synchronize`: the gradients are equal on all data ranks, so nothing is reduced here."""
        return torch.linalg.vector_norm(torch.stack([p.grad.float().norm() for p in self.params]))


def step(buckets, optimizer, loss, clip):
    loss.backward()
    buckets.synchronize()
    norm = buckets.global_norm()
    scale = (clip / (norm + 1e-6)).clamp(max=1.0)
    for param in buckets.params:
        param.grad.mul_(scale)
    optimizer.step()
    optimizer.zero_grad()
    return norm
