"""AdaScale: scale the learning rate by gradient statistics of all ranks."""
# thread: facebookresearch/fairscale#155
import functools
from typing import Optional

import numpy as np
import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.optim import Optimizer


class AdaScale:
    def __init__(self, optimizer: Optimizer, scale: Optional[float] = None, smoothing: float = 0.9):
        self._optimizer = optimizer
        self._world_size = dist.get_world_size()
        self._scale = float(self._world_size if scale is None else scale)
        self._smoothing = smoothing
        self._local_grad_sqr: Optional[torch.Tensor] = None
        self._callback_queued = False
        n = len(optimizer.param_groups)
        self._state = {"grad_sqr_avg": np.ones(n), "grad_var_avg": np.zeros(n)}
        for idx, param_group in enumerate(optimizer.param_groups):
            for param in param_group["params"]:
                param.register_hook(functools.partial(self._backward_hook, idx))

    def gain(self) -> float:
        var, sqr = np.sum(self._state["grad_var_avg"]), np.sum(self._state["grad_sqr_avg"])
        return (var + sqr) / (var / self._scale + sqr)

    def _update_avg(self, name: str, value: np.ndarray) -> None:
        self._state[name] = self._smoothing * self._state[name] + (1 - self._smoothing) * value

    def _backward_hook(self, idx: int, grad: torch.Tensor) -> None:
        # before DDP reduces the gradient
        if self._local_grad_sqr is None:
            self._local_grad_sqr = torch.zeros(len(self._optimizer.param_groups), device=grad.device)
        self._local_grad_sqr[idx] += grad.pow(2).sum()
        self._callback_queued = False
        Variable._execution_engine.queue_callback(self._queue_callback)

    def _queue_callback(self) -> None:
        # after DDP's own callback
        if self._callback_queued:
            return
        self._callback_queued = True
        Variable._execution_engine.queue_callback(self._final_callback)

    def _final_callback(self) -> None:
        self._callback_queued = False
        self._local_grad_sqr.div_(self._world_size)
        work = dist.all_reduce(self._local_grad_sqr, async_op=True)
        total_grad_sqr = np.array(
            [sum(p.grad.pow(2).sum().item() for p in g["params"]) for g in self._optimizer.param_groups]
        )
        work.wait()
        local_grad_sqr = self._local_grad_sqr.cpu().numpy()

        S, N = self._scale, self._world_size
        grad_var = (local_grad_sqr - total_grad_sqr) * S / (N - 1)
        grad_sqr = total_grad_sqr - grad_var / S
        self._update_avg("grad_sqr_avg", np.maximum(grad_sqr, 0.0))
        self._update_avg("grad_var_avg", np.maximum(grad_var, 1e-6))
        self._local_grad_sqr = None

    def step(self) -> None:
        original_lr = [g["lr"] for g in self._optimizer.param_groups]
        for g in self._optimizer.param_groups:
            g["lr"] = self.gain() * g["lr"]
        self._optimizer.step()
        for lr, g in zip(original_lr, self._optimizer.param_groups):
            g["lr"] = lr
