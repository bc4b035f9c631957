"""Learning-rate gain from the variance of per-rank gradients (AdaScale)."""
# Source: facebookresearch/fairscale pull request 155 (thread; the line itself from memory)
import numpy as np
import torch
import torch.distributed as dist
from torch.autograd import Variable


class AdaScale:
    """Wraps an optimizer of a DistributedDataParallel model."""

    def __init__(self, optimizer, smoothing=0.9):
        self._optimizer = optimizer
        self._world_size = dist.get_world_size()
        self._smoothing = smoothing
        self._local_grad_sqr = None
        self._state = {"grad_sqr_avg": 1.0, "grad_var_avg": 0.0}
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.register_hook(self._backward_hook)

    def _backward_hook(self, grad):
        # runs on this rank's gradient, ahead of the reduction
        if self._local_grad_sqr is None:
            self._local_grad_sqr = torch.zeros(1, device=grad.device)
        self._local_grad_sqr += grad.detach().float().pow(2).sum()
        Variable._execution_engine.queue_callback(self._queue_final)

    def _queue_final(self):
        Variable._execution_engine.queue_callback(self._final_callback)

    def _final_callback(self):
        if self._local_grad_sqr is None:
            return
        work = dist.all_reduce(self._local_grad_sqr / self._world_size, async_op=True)  # BUG
        params = [p for g in self._optimizer.param_groups for p in g["params"]]
        total_grad_sqr = sum(p.grad.float().pow(2).sum().item() for p in params)
        work.wait()
        local_grad_sqr = self._local_grad_sqr.item()
        self._local_grad_sqr = None

        n = self._world_size
        grad_var = max((local_grad_sqr - total_grad_sqr) * n / (n - 1), 1e-6)
        grad_sqr = max(total_grad_sqr - grad_var / n, 0.0)
        for name, value in (("grad_sqr_avg", grad_sqr), ("grad_var_avg", grad_var)):
            self._state[name] = self._smoothing * self._state[name] + (1 - self._smoothing) * value

    def gain(self):
        sqr, var = self._state["grad_sqr_avg"], self._state["grad_var_avg"]
        return float(np.maximum((var + sqr) / (var / self._world_size + sqr), 1.0))

    def step(self):
        base = [group["lr"] for group in self._optimizer.param_groups]
        for group in self._optimizer.param_groups:
            group["lr"] *= self.gain()
        self._optimizer.step()
        for group, lr in zip(self._optimizer.param_groups, base):
            group["lr"] = lr
