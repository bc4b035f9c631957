"""Differentially private optimizers, single process and data parallel."""
from typing import Callable, List, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer


class DPOptimizer:
    """Clips per-sample gradients, adds Gaussian noise, then calls the wrapped optimizer.

    ``expected_batch_size`` is the number of samples of one process.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        expected_batch_size: int,
        generator: Optional[torch.Generator] = None,
    ):
        self.original_optimizer = optimizer
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = max_grad_norm
        self.expected_batch_size = expected_batch_size
        self.generator = generator

    @property
    def params(self) -> List[nn.Parameter]:
        groups = self.original_optimizer.param_groups
        return [p for group in groups for p in group["params"] if p.requires_grad]

    def clip_and_accumulate(self) -> None:
        norms = [p.grad_sample.flatten(1).norm(2, dim=-1) for p in self.params]
        per_sample_norm = torch.stack(norms, dim=1).norm(2, dim=1)
        factor = (self.max_grad_norm / (per_sample_norm + 1e-6)).clamp(max=1.0)
        for p in self.params:
            p.summed_grad = torch.einsum("i,i...->...", factor, p.grad_sample)

    def add_noise(self) -> None:
        for p in self.params:
            noise = torch.normal(
                mean=0.0,
                std=self.noise_multiplier * self.max_grad_norm,
                size=p.summed_grad.shape,
                device=p.summed_grad.device,
                generator=self.generator,
            )
            p.grad = (p.summed_grad + noise).view_as(p)

    def scale_grad(self) -> None:
        for p in self.params:
            p.grad /= self.expected_batch_size

    def pre_step(self) -> bool:
        self.clip_and_accumulate()
        self.add_noise()
        self.scale_grad()
        return True

    def step(self, closure: Optional[Callable[[], float]] = None):
        if self.pre_step():
            return self.original_optimizer.step(closure)
        return None

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad_sample = None
            p.summed_grad = None
        self.original_optimizer.zero_grad()


class DistributedDPOptimizer(DPOptimizer):
    """Every process clips its own samples; the noisy sums are combined over processes."""

    def __init__(self, optimizer: Optimizer, **kwargs):
        super().__init__(optimizer, **kwargs)
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def add_noise(self) -> None:
        if self.rank == 0:
            super().add_noise()
        else:
            for p in self.params:
                p.grad = p.summed_grad.view_as(p)

    def reduce_gradients(self) -> None:
        for p in self.params:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= self.world_size

    def step(self, closure: Optional[Callable[[], float]] = None):
        if self.pre_step():
            self.reduce_gradients()
            return self.original_optimizer.step(closure)
        return None


def make_private(module, optimizer, accountant, *, noise_multiplier, max_grad_norm, batch_size):
    distributed = dist.is_initialized() and dist.get_world_size() > 1
    if distributed:
        for p in module.parameters():
            dist.broadcast(p.data, 0)
    cls = DistributedDPOptimizer if distributed else DPOptimizer
    accountant.register(noise_multiplier=noise_multiplier)
    return cls(
        optimizer,
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
        expected_batch_size=batch_size,
    )
