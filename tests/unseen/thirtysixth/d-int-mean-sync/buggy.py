# thread: https://github.com/Lightning-AI/pytorch-lightning/issues/21838
"""Accumulation and synchronisation of logged values over an epoch."""
from dataclasses import dataclass
from typing import Callable, Dict, Optional

import torch
import torch.distributed as dist
from torch import nn


def _distributed_is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def _sync_ddp(result: torch.Tensor, group=None, reduce_op: Optional[str] = None) -> torch.Tensor:
    """Reduces ``result`` over the processes; ``mean`` divides behind the sum."""
    if not _distributed_is_initialized():
        return result
    group = group if group is not None else dist.group.WORLD
    op = getattr(dist.ReduceOp, "SUM" if reduce_op in (None, "avg", "mean") else reduce_op.upper())
    result = result.clone()
    dist.all_reduce(result, op=op, group=group)
    if reduce_op in ("avg", "mean"):
        result.copy_(result / dist.get_world_size(group))
    return result


@dataclass
class _Metadata:
    name: str
    on_step: bool = False
    on_epoch: bool = True
    sync_dist: bool = False
    reduce_fx: str = "mean"

    def sync(self, value: torch.Tensor) -> torch.Tensor:
        return _sync_ddp(value, reduce_op=self.reduce_fx) if self.sync_dist else value


class _ResultMetric(nn.Module):
    """With ``mean`` the values are weighted by the batch sizes of all batches and ranks."""

    def __init__(self, meta: _Metadata):
        super().__init__()
        self.meta = meta
        default = {"max": -float("inf"), "min": float("inf")}.get(meta.reduce_fx, 0.0)
        self.default = default
        self.register_buffer("value", torch.tensor(default, dtype=torch.float32), persistent=False)
        self.register_buffer("cumulated_batch_size", torch.tensor(0), persistent=False)

    def update(self, value: torch.Tensor, batch_size: int):
        value = value.detach().to(self.value)
        if self.meta.reduce_fx == "mean":
            self.value += value * batch_size
            self.cumulated_batch_size += batch_size
        elif self.meta.reduce_fx == "sum":
            self.value += value
        else:
            fn: Callable = {"max": torch.maximum, "min": torch.minimum}[self.meta.reduce_fx]
            self.value.copy_(fn(self.value, value))

    def compute(self) -> torch.Tensor:
        value = self.meta.sync(self.value)
        if self.meta.reduce_fx == "mean":
            cumulated_batch_size = self.meta.sync(self.cumulated_batch_size)  # BUG
            return value / cumulated_batch_size
        return value

    def reset(self):
        self.value.fill_(self.default)
        self.cumulated_batch_size.zero_()


class _ResultCollection:
    def __init__(self, device):
        self.device = device
        self.metrics: Dict[str, _ResultMetric] = {}

    def log(self, name, value, batch_size, **meta):
        if name not in self.metrics:
            self.metrics[name] = _ResultMetric(_Metadata(name, **meta)).to(self.device)
        if not torch.is_tensor(value):
            value = torch.tensor(value, dtype=torch.float32, device=self.device)
        self.metrics[name].update(value, batch_size)

    def epoch_metrics(self):
        out = {name: m.compute().item() for name, m in self.metrics.items() if m.meta.on_epoch}
        for metric in self.metrics.values():
            metric.reset()
        return out


def validate(model, loader, device):
    """``loader`` may yield a different number of batches on every rank."""
    results = _ResultCollection(device)
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            correct = (logits.argmax(-1) == y).float().mean()
            results.log("val_loss", loss, x.size(0), sync_dist=True)
            results.log("val_acc", correct, x.size(0), sync_dist=True)
    model.train()
    return results.epoch_metrics()
