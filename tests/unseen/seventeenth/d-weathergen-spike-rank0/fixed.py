# Source: ecmwf/WeatherGenerator issue #2724, PR #2718, src/weathergen/train/trainer.py
# Whether a batch is skipped (NaN or a spike of the loss) is decided from the loss of rank 0 and
# broadcast. The losses are local: an anomaly on another rank is not seen, and its gradients enter
# the DDP all-reduce.
# Repair: every rank decides on its own loss, and the flags are combined with MAX.
import logging
import math
from collections import deque

import torch
import torch.distributed as dist

logger = logging.getLogger(__name__)


class Trainer:
    def __init__(self, model_ddp, optimizer, device, factor: float = 10.0, window: int = 100):
        self.model, self.optimizer, self.device = model_ddp, optimizer, device
        self.loss_spike_factor = factor
        self.loss_history: deque[float] = deque(maxlen=window)

    def _should_skip_loss_spike(self, loss: float) -> bool:
        if not math.isfinite(loss):
            return True
        if len(self.loss_history) == self.loss_history.maxlen:
            mean = sum(self.loss_history) / len(self.loss_history)
            if loss > self.loss_spike_factor * mean:
                return True
        self.loss_history.append(loss)
        return False

    def _sync_loss_spike_skip(self, loss: float) -> bool:
        flag = torch.tensor([int(self._should_skip_loss_spike(loss))], dtype=torch.int32, device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def train_step(self, batch, loss_calculator) -> bool:
        # each rank has other samples
        preds = self.model(batch.inputs.to(self.device))
        loss = loss_calculator(preds, batch.targets.to(self.device))

        if self._sync_loss_spike_skip(loss.item()):
            logger.warning("skipping batch: loss spike or non-finite loss (%s)", loss.item())
            self.optimizer.zero_grad()
            return False

        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return True
