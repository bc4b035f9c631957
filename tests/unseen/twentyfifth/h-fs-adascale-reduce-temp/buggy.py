# fairscale 6802ad49 (PR #155): AdaScale all-reduces the temporary result of a division; the local statistic
# that is used afterwards stays local, so every replica computes another gain and learning rate.
from typing import Any, Optional

import numpy as np
import torch
from torch.autograd import Variable
from torch.optim import Optimizer


class AdaScale(object):
    """Used with DistributedDataParallel: gradients are averaged when _final_callback runs."""

    def __init__(self, optimizer: Optimizer, world_size: int, scale: float, smoothing: float = 0.999):
        self._optimizer = optimizer
        self._world_size = world_size
        self._scale = scale
        self._smoothing = smoothing
        self._local_grad_sqr: Optional[torch.Tensor] = None
        self.state = {"grad_sqr_avg": 1.0, "grad_var_avg": scale - 1.0}
        for idx, param_group in enumerate(self._optimizer.param_groups):
            for param in param_group["params"]:
                param.register_hook(lambda grad, idx=idx: self._backward_hook(idx, grad))

    def gain(self) -> float:
        var, sqr = np.sum(self.state["grad_var_avg"]), np.sum(self.state["grad_sqr_avg"])
        return (var + sqr) / (var / self._scale + sqr)

    def _backward_hook(self, idx: int, grad: torch.Tensor) -> None:
        # Before gradients are synchronized between world_size.
        if self._local_grad_sqr is None:
            self._local_grad_sqr = torch.zeros(len(self._optimizer.param_groups), device=grad.device)
            Variable._execution_engine.queue_callback(
                lambda: Variable._execution_engine.queue_callback(self._final_callback)
            )
        self._local_grad_sqr[idx] += grad.pow(2).sum()

    def _final_callback(self) -> None:
        torch.distributed.all_reduce(self._local_grad_sqr / self._world_size)  # BUG
        local_grad_sqr = self._local_grad_sqr.cpu().numpy()
        total_grad_sqr = np.array(
            [sum(param.grad.pow(2).sum().item() for param in group["params"]) for group in self._optimizer.param_groups]
        )
        grad_sqr = (self._world_size * total_grad_sqr - local_grad_sqr) / (self._world_size - 1)
        grad_var = (local_grad_sqr - total_grad_sqr) * self._scale / (self._world_size - 1)
        theta = self._smoothing**self._scale
        for name, value in (("grad_sqr_avg", np.maximum(grad_sqr, 0.0)), ("grad_var_avg", np.maximum(grad_var, 1e-6))):
            self.state[name] = theta * self.state[name] + (1.0 - theta) * value
        self._local_grad_sqr = None

    def step(self, *args: Any, **kwargs: Any):
        initial_lr = [pg["lr"] for pg in self._optimizer.param_groups]
        for pg in self._optimizer.param_groups:
            pg["lr"] = self.gain() * pg["lr"]
        res = self._optimizer.step(*args, **kwargs)
        for lr, pg in zip(initial_lr, self._optimizer.param_groups):
            pg["lr"] = lr
        return res
