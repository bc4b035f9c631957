"""Epoch-level results of a training loop, synchronised over the data-parallel processes."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


def _sync_ddp(result, group=None, reduce_op="mean"):
    group = group if group is not None else dist.group.WORLD
    if dist.get_world_size(group) == 1:
        return result
    result = result.clone()
    dist.all_reduce(result, op=dist.ReduceOp.SUM, group=group)
    if reduce_op == "mean":
        result.copy_(result / dist.get_world_size(group))
    return result


@dataclass
class _Metadata:
    name: str
    on_epoch: bool = True
    sync_dist: bool = False


class _ResultMetric(nn.Module):
    def __init__(self, metadata, device):
        super().__init__()
        self.meta = metadata
        self.register_buffer("value", torch.zeros((), device=device), persistent=False)
        self.register_buffer("cumulated_batch_size", torch.tensor(0, device=device), persistent=False)

    def update(self, value, batch_size):
        self.value += value.detach().mean() * batch_size
        self.cumulated_batch_size += batch_size

    def compute(self):
        value, cumulated_batch_size = self.value, self.cumulated_batch_size
        if self.meta.sync_dist:
            value = _sync_ddp(value, reduce_op="sum")
            cumulated_batch_size = _sync_ddp(cumulated_batch_size, reduce_op="sum")
        return value / cumulated_batch_size

    def reset(self):
        self.value.zero_()
        self.cumulated_batch_size.zero_()


class _ResultCollection(dict):
    def __init__(self, device):
        super().__init__()
        self.device = device

    def log(self, name, value, batch_size, sync_dist=False):
        if name not in self:
            self[name] = _ResultMetric(_Metadata(name, sync_dist=sync_dist), self.device)
        self[name].update(value, batch_size)

    def epoch_metrics(self):
        metrics = {name: metric.compute().item() for name, metric in self.items()}
        for metric in self.values():
            metric.reset()
        return metrics


class _EvaluationLoop:
    def __init__(self, module, dataloader, device):
        self.module = module
        self.dataloader = dataloader  # streaming shards, lengths differ from rank to rank
        self.results = _ResultCollection(device)

    @torch.no_grad()
    def run(self):
        self.module.eval()
        for x, y in self.dataloader:
            logits = self.module(x)
            loss = nn.functional.cross_entropy(logits, y, reduction="none")
            acc = (logits.argmax(-1) == y).float()
            self.results.log("val_loss", loss, x.size(0), sync_dist=True)
            self.results.log("val_acc", acc, x.size(0), sync_dist=True)
        return self.results.epoch_metrics()


class EarlyStopping:
    def __init__(self, monitor="val_loss", patience=3):
        self.monitor, self.patience = monitor, patience
        self.best, self.wait = float("inf"), 0

    def should_stop(self, metrics):
        if metrics[self.monitor] < self.best:
            self.best, self.wait = metrics[self.monitor], 0
        else:
            self.wait += 1
        return self.wait >= self.patience
