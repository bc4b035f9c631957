# Reduced from WeatherGenerator train/trainer.py (ecmwf/WeatherGenerator pull request 2718, read).
# A batch with a loss spike or NaN is skipped. Losses are rank-local under DDP, the decision must be
# the same on all ranks.
# What happens: an anomaly on a rank other than 0 is never skipped and its gradient enters the
# all-reduce of all ranks.
from collections import deque

import torch
import torch.distributed as dist


class LossSpikeGuard:
    def __init__(self, factor=5.0, window=100):
        self.factor, self.history = factor, deque(maxlen=window)

    def is_anomalous(self, loss):
        value = loss.detach().float().item()
        if not torch.isfinite(loss).item():
            return True
        spike = len(self.history) == self.history.maxlen and value > self.factor * (
            sum(self.history) / len(self.history)
        )
        if not spike:
            self.history.append(value)
        return spike


class Trainer:
    def __init__(self, model, optimizer, grad_scaler, loss_calculator, device):
        self.model, self.optimizer, self.grad_scaler = model, optimizer, grad_scaler
        self.loss_calculator, self.device = loss_calculator, device
        self.guard = LossSpikeGuard()

    def should_skip(self, loss):
        skip = torch.zeros(1, dtype=torch.int32, device=self.device)
        skip.fill_(int(self.guard.is_anomalous(loss)))
        dist.all_reduce(skip, op=dist.ReduceOp.MAX)
        return bool(skip.item())

    def train_batch(self, batch):
        self.optimizer.zero_grad()
        preds = self.model(batch)
        loss = self.loss_calculator(preds, batch)
        if self.should_skip(loss):
            return None
        self.grad_scaler.scale(loss).backward()
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        return loss.detach()
