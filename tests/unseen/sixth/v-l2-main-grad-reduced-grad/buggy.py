"""Reduce the accumulated gradients."""
import torch
import torch.distributed as dist


class MixedPrecisionOptimizer:
    def __init__(self, params, inner, dp_group):
        self.params, self.inner, self.dp_group = list(params), inner, dp_group
        for p in self.params:
            p.main_grad = torch.zeros_like(p, dtype=torch.float32)

    def accumulate(self):
        for p in self.params:
            p.main_grad.add_(p.grad)
            p.grad = None

    def reduce(self):
        for p in self.params:
            if p.grad is not None:
                dist.all_reduce(p.grad, group=self.dp_group)  # BUG: accumulate() has taken it away

    def step(self):
        self.reduce()
        for p in self.params:
            p.grad = p.main_grad.to(p.dtype)
        self.inner.step()
