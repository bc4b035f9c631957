"""Dynamic fp16 loss scaling for models trained with data and tensor parallelism."""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Gangs:
    """Process groups: ``root`` holds every rank, ``dp`` and ``tp`` one dimension each."""

    root: dist.ProcessGroup
    dp: dist.ProcessGroup
    tp: dist.ProcessGroup

    @property
    def tp_size(self):
        return dist.get_world_size(self.tp)


@dataclass
class LossScaleResult:
    old_scale: float
    new_scale: float
    overflow: bool
    min_reached: bool = False


class StandardFloat16LossScaler:
    def __init__(
        self,
        gangs,
        optimizer,
        init_scale=2.0**15,
        scale_factor=2.0,
        scale_window=2000,
        min_scale=1e-4,
    ):
        self.gangs = gangs
        self.optimizer = optimizer
        self.scale = init_scale
        self.scale_factor = scale_factor
        self.scale_window = scale_window
        self.min_scale = min_scale
        self._good_steps = 0

    def backward(self, loss):
        (loss * self.scale).backward()

    def unscale_grads_(self):
        inverse = 1.0 / self.scale
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(inverse)

    def _overflowed(self):
        """Whether a gradient of any rank holds an inf or a nan."""
        device = self.optimizer.param_groups[0]["params"][0].device
        found = torch.zeros((), device=device)
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None and not torch.isfinite(p.grad).all():
                    found.fill_(1.0)
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self.gangs.dp)  # BUG
        return found.item() > 0

    def run_optimizer_step(self, step_nr):
        old_scale = self.scale
        if self._overflowed():
            self._good_steps = 0
            self.scale = max(self.scale / self.scale_factor, self.min_scale)
            return LossScaleResult(old_scale, self.scale, True, self.scale == self.min_scale)
        self.unscale_grads_()
        self.optimizer.step()
        self._good_steps += 1
        if self._good_steps % self.scale_window == 0:
            self.scale *= self.scale_factor
        return LossScaleResult(old_scale, self.scale, False)


class Trainer:
    def __init__(self, model, criterion, optimizer, gangs, data_reader):
        self.model = torch.nn.parallel.DistributedDataParallel(model, process_group=gangs.dp)
        self.criterion = criterion
        self.optimizer = optimizer
        self.data_reader = data_reader
        self.loss_scaler = StandardFloat16LossScaler(gangs, optimizer)

    def run(self, num_steps):
        step_nr = 0
        while step_nr < num_steps:
            batch = next(self.data_reader)
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(batch.seqs), batch.targets)
            self.loss_scaler.backward(loss)
            result = self.loss_scaler.run_optimizer_step(step_nr)
            if result.min_reached:
                raise RuntimeError("the loss scale reached its minimum")
            if not result.overflow:
                step_nr += 1
