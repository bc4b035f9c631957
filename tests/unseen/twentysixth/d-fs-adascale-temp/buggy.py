# fairscale 6802ad49 (#155)
"""AdaScale: gradient variance statistics across workers."""
import numpy as np
import torch


class AdaScale:
    def __init__(self, optimizer, world_size, smoothing=0.9):
        self._optimizer = optimizer
        self._world_size = world_size
        self._smoothing = smoothing
        groups = len(optimizer.param_groups)
        self._local_grad_sqr = None
        self._state = {"grad_sqr_avg": np.ones(groups), "grad_var_avg": np.zeros(groups)}
        for idx, group in enumerate(optimizer.param_groups):
            for p in group["params"]:
                p.register_hook(lambda grad, idx=idx: self._backward_hook(idx, grad))

    def _backward_hook(self, pg_idx, grad):
        # runs before DDP averages: grad belongs to this worker only
        if self._local_grad_sqr is None:
            n = len(self._optimizer.param_groups)
            self._local_grad_sqr = torch.zeros(n, device=grad.device)
        self._local_grad_sqr[pg_idx] += grad.pow(2).sum()

    def final_callback(self):
        """Once per backward, after DDP has averaged the gradients."""
        S = self._world_size
        torch.distributed.all_reduce(self._local_grad_sqr / S)  # BUG: the reduced value is thrown away
        local = self._local_grad_sqr.cpu().numpy()
        total = np.array(
            [sum(p.grad.pow(2).sum().item() for p in g["params"]) for g in self._optimizer.param_groups]
        )
        grad_var = local * S / (S - 1) - total * S / (S - 1)
        grad_sqr = total - grad_var / S
        s = self._smoothing
        self._state["grad_var_avg"] = s * self._state["grad_var_avg"] + (1 - s) * np.maximum(grad_var, 1e-6)
        self._state["grad_sqr_avg"] = s * self._state["grad_sqr_avg"] + (1 - s) * np.maximum(grad_sqr, 0.0)
        self._local_grad_sqr = None
