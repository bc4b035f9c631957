# facebookresearch/fairscale pull request 155 (commit 6802ad49)
"""AdaScale: learning-rate gain from gradient statistics, used together with DDP."""
import numpy as np
import torch
import torch.distributed
from torch.autograd import Variable


class AdaScale:
    def __init__(self, optimizer, world_size, scale=None, smoothing=0.999):
        assert world_size > 1
        self._optimizer, self._world_size = optimizer, world_size
        self._scale = float(world_size) if scale is None else scale
        self._smoothing = smoothing
        self._local_grad_sqr = None
        self._final_callback_queued = False
        self.state = {}
        for idx, param_group in enumerate(optimizer.param_groups):
            for param in param_group["params"]:
                param.register_hook(lambda grad, idx=idx: self._backward_hook(idx, grad))

    def gain(self):
        var, sqr = np.sum(self.state["grad_var_avg"]), np.sum(self.state["grad_sqr_avg"])
        return (var + sqr) / (var / self._scale + sqr)

    def _update_avg(self, name, value, factor):
        biased = factor * self.state.get(name + "_biased", 0.0) + (1.0 - factor) * value
        unbias = factor * self.state.get(name + "_unbias", 0.0) + (1.0 - factor)
        self.state[name + "_biased"], self.state[name + "_unbias"] = biased, unbias
        self.state[name] = biased / unbias

    def _backward_hook(self, idx, grad):
        # once for each parameter, before gradients are synchronized
        if self._local_grad_sqr is None:
            self._local_grad_sqr = torch.zeros(len(self._optimizer.param_groups), device=grad.device)
        self._local_grad_sqr[idx] += grad.pow(2).sum()
        self._final_callback_queued = False
        Variable._execution_engine.queue_callback(self._queue_callback)

    def _queue_callback(self):
        # run _final_callback once, after the callback of DistributedDataParallel
        if self._final_callback_queued:
            return
        self._final_callback_queued = True
        Variable._execution_engine.queue_callback(self._final_callback)

    def _final_callback(self):
        # gradients have been averaged between the workers
        self._final_callback_queued = False
        torch.distributed.all_reduce(self._local_grad_sqr)
        self._local_grad_sqr.div_(self._world_size)
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
