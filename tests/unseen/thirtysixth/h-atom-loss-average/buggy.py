# thread: https://github.com/facebookresearch/fairchem/pull/269
"""Losses and the training step of an energy / force trainer for atomic systems."""
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def get_world_size() -> int:
    return dist.get_world_size() if initialized() else 1


def all_reduce(data, device, average=False):
    """Sum (or mean) of a number or tensor over the replicas, as a tensor."""
    tensor = data.detach().clone() if torch.is_tensor(data) else torch.tensor(data, device=device)
    if initialized():
        dist.all_reduce(tensor)
        if average:
            tensor = tensor / get_world_size()
    return tensor


class L2MAELoss(nn.Module):
    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, input, target):
        dists = torch.linalg.vector_norm(input - target, dim=-1)
        return dists.mean() if self.reduction == "mean" else dists.sum()


class DDPLoss(nn.Module):
    """Mean over the samples (systems or atoms) of all replicas; DDP averages the gradients."""

    def __init__(self, loss_fn):
        super().__init__()
        self.loss_fn = loss_fn
        self.loss_fn.reduction = "mean"

    def forward(self, input, target):
        return self.loss_fn(input, target)  # BUG


@dataclass
class TaskConfig:
    energy_coefficient: float = 1.0
    force_coefficient: float = 30.0
    clip_grad_norm: float = 10.0
    primary_metric: str = "forces_mae"
    normalizer: dict = field(default_factory=lambda: {"mean": 0.0, "std": 1.0})


class ForcesTrainer:
    def __init__(self, model, optimizer, cfg: TaskConfig, device):
        self.device, self.cfg = device, cfg
        self.model = DistributedDataParallel(model.to(device), device_ids=[device.index])
        self.optimizer = optimizer
        self.loss_fn = {"energy": DDPLoss(nn.L1Loss()), "force": DDPLoss(L2MAELoss())}

    def _normalize(self, y):
        return (y - self.cfg.normalizer["mean"]) / self.cfg.normalizer["std"]

    def _forward(self, batch):
        energy, forces = self.model(batch)
        return {"energy": energy.view(-1), "forces": forces}

    def _compute_loss(self, out, batch):
        energy_target = self._normalize(batch.y.to(self.device))
        force_target = batch.force.to(self.device) / self.cfg.normalizer["std"]
        free = batch.fixed.to(self.device) == 0
        loss = self.cfg.energy_coefficient * self.loss_fn["energy"](out["energy"], energy_target)
        loss = loss + self.cfg.force_coefficient * self.loss_fn["force"](out["forces"][free], force_target[free])
        return loss

    @torch.no_grad()
    def _compute_metrics(self, out, batch):
        error = (out["forces"] * self.cfg.normalizer["std"] - batch.force.to(self.device)).abs()
        total = all_reduce(error.sum(), self.device)
        numel = all_reduce(error.numel(), self.device)
        return {"forces_mae": (total / numel).item()}

    def train(self, loader, epochs, print_every=100):
        for epoch in range(epochs):
            loader.batch_sampler.set_epoch(epoch)
            self.model.train()
            for i, batch in enumerate(loader):
                out = self._forward(batch)
                loss = self._compute_loss(out, batch)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip_grad_norm)
                self.optimizer.step()
                if i % print_every == 0:
                    metrics = self._compute_metrics(out, batch)
                    metrics["loss"] = all_reduce(loss, self.device, average=True).item()
                    if not initialized() or dist.get_rank() == 0:
                        print(f"epoch {epoch} batch {i} {metrics}")
