# thread: https://github.com/Project-MONAI/MONAI/issues/1531
"""ROC-AUC handler of an evaluator that runs on several processes."""
from enum import Enum
from typing import List, Tuple

import numpy as np
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.metrics import Metric
from ignite.metrics.metric import reinit__is_reduced
from torch import nn
from torch.utils.data import DataLoader, Sampler


class Average(Enum):
    MACRO = "macro"
    MICRO = "micro"
    NONE = "none"


class EvaluationSampler(Sampler):
    """Every sample once: the parts of the ranks may differ by one sample."""

    def __init__(self, dataset, rank, world_size):
        self.indices = range(rank, len(dataset), world_size)

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


def _calculate(y_pred: torch.Tensor, y: torch.Tensor) -> float:
    order = y_pred.argsort(descending=True)
    labels = y[order].double()
    n_pos, n_neg = labels.sum(), (1 - labels).sum()
    if n_pos == 0 or n_neg == 0:
        return float("nan")
    tps = labels.cumsum(0)
    return float(((1 - labels) * tps).sum() / (n_pos * n_neg))


def compute_roc_auc(y_pred: torch.Tensor, y: torch.Tensor, average=Average.MACRO):
    if y_pred.ndimension() == 1:
        return _calculate(y_pred, y)
    if average == Average.MICRO:
        return _calculate(y_pred.flatten(), y.flatten())
    values = [_calculate(p, t) for p, t in zip(y_pred.transpose(0, 1), y.transpose(0, 1))]
    return values if average == Average.NONE else float(np.mean(values))


def all_gather_concat(data: torch.Tensor) -> torch.Tensor:
    """Concatenation of the tensors of all processes along the first dimension."""
    if not (dist.is_available() and dist.is_initialized()):
        return data
    world_size = dist.get_world_size()
    parts = [torch.empty_like(data) for _ in range(world_size)]
    dist.all_gather(parts, data.contiguous())  # BUG
    return torch.cat(parts, dim=0)


class ROCAUC(Metric):
    def __init__(self, to_onehot_y=False, softmax=False, average=Average.MACRO, output_transform=lambda x: x,
                 device="cpu"):
        self.to_onehot_y, self.softmax, self.average = to_onehot_y, softmax, average
        super().__init__(output_transform, device=device)

    @reinit__is_reduced
    def reset(self) -> None:
        self._predictions: List[torch.Tensor] = []
        self._targets: List[torch.Tensor] = []

    @reinit__is_reduced
    def update(self, output: Tuple[torch.Tensor, torch.Tensor]) -> None:
        y_pred, y = output
        if self.softmax:
            y_pred = y_pred.float().softmax(dim=1)
        if self.to_onehot_y:
            y = nn.functional.one_hot(y.long().view(-1), y_pred.size(1))
        self._predictions.append(y_pred.detach().clone())
        self._targets.append(y.detach().clone())

    def compute(self):
        prediction = all_gather_concat(torch.cat(self._predictions, dim=0))
        target = all_gather_concat(torch.cat(self._targets, dim=0))
        return compute_roc_auc(prediction, target, self.average)


def build_evaluator(model, dataset, device, batch_size=8):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(dataset, batch_size=batch_size, sampler=EvaluationSampler(dataset, rank, world_size))

    def step(_engine, batch):
        model.eval()
        with torch.no_grad():
            return model(batch["image"].to(device)), batch["label"].to(device)

    evaluator = Engine(step)
    ROCAUC(to_onehot_y=True, softmax=True, device=device).attach(evaluator, "val_auc")

    @evaluator.on(Events.EPOCH_COMPLETED)
    def report(engine):
        if rank == 0:
            print(f"val_auc {engine.state.metrics['val_auc']}")

    return evaluator, loader
