# thread: https://github.com/ecmwf/WeatherGenerator/pull/2718
"""Training loop that leaves out batches with abnormal losses."""
import collections
import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class SpikeDetector:
    """Flags values far above the running median, and non-finite ones."""

    def __init__(self, window=128, factor=4.0, warmup=32):
        self.history = collections.deque(maxlen=window)
        self.factor, self.warmup = factor, warmup

    def is_spike(self, value):
        if not math.isfinite(value):
            return True
        if len(self.history) < self.warmup:
            return False
        ordered = sorted(self.history)
        return value > self.factor * ordered[len(ordered) // 2]

    def record(self, value):
        if math.isfinite(value):
            self.history.append(value)


class Trainer:
    def __init__(self, model, loss_fn, optimizer, scheduler, device, log_file=None):
        self.device = device
        self.model = DistributedDataParallel(model.to(device), device_ids=[device.index])
        self.loss_fn, self.optimizer, self.scheduler = loss_fn, optimizer, scheduler
        self.detector = SpikeDetector()
        self.log_file = log_file if dist.get_rank() == 0 else None
        self.skipped = 0

    def should_skip(self, loss):
        value = loss.item()
        flag = torch.zeros(1, device=self.device)
        if self.detector.is_spike(value):
            flag.fill_(1.0)
        self.detector.record(value)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def step(self, batch):
        source, target = (t.to(self.device, non_blocking=True) for t in batch)
        loss = self.loss_fn(self.model(source), target)
        if self.should_skip(loss.detach()):
            self.skipped += 1
            self.optimizer.zero_grad(set_to_none=True)
            return None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        return loss.detach()

    def log(self, epoch, step, loss):
        if self.log_file is not None and loss is not None:
            self.log_file.write(f"{epoch} {step} {loss.item():.6f} {self.skipped}\n")

    def run(self, loader, epochs):
        for epoch in range(epochs):
            loader.sampler.set_epoch(epoch)
            for step, batch in enumerate(loader):
                self.log(epoch, step, self.step(batch))
