# Reduces hand-written accumulation loops that accelerate's sync_with_dataloader replaced: the micro-batches left at
# the end of an epoch are accumulated under no_sync and stepped without ever having been averaged.
import contextlib

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class AccumulatingTrainer:
    def __init__(self, model, lr, accum_steps, device):
        self.model = DDP(model.to(device), device_ids=[device.index])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.accum_steps = accum_steps
        self.device = device

    def _group_size(self, i, total):
        """Number of micro-batches in the accumulation group of micro-batch `i`."""
        start = i - i % self.accum_steps
        return min(self.accum_steps, total - start)

    def _ends_group(self, i, total):
        return (i + 1) % self.accum_steps == 0 or i + 1 == total

    def run_epoch(self, loader):
        total = len(loader)
        for i, (x, y) in enumerate(loader):
            sync = self._ends_group(i, total)
            context = contextlib.nullcontext() if sync else self.model.no_sync()
            with context:
                logits = self.model(x.to(self.device))
                loss = F.cross_entropy(logits, y.to(self.device))
                (loss / self._group_size(i, total)).backward()
            if sync:
                self.optimizer.step()
                self.optimizer.zero_grad()
