"""AdaScale gain from local and total gradient norms.
facebookresearch/fairscale #155, "fixing adascale all_reduce".
"""
import numpy as np
import torch
import torch.distributed as dist


class AdaScale:
    def __init__(self, optimizer, world_size, smoothing=0.9):
        self._optimizer, self._world_size, self._smoothing = optimizer, world_size, smoothing
        self._local_grad_sqr = None
        self._state = {"grad_sqr_avg": np.ones(1), "grad_var_avg": np.zeros(1)}
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.register_hook(self._backward_hook)

    def _backward_hook(self, grad):
        # before the gradients are averaged over the workers
        grad_sqr = grad.detach().float().pow(2).sum()
        if self._local_grad_sqr is None:
            self._local_grad_sqr = torch.zeros_like(grad_sqr)
        self._local_grad_sqr += grad_sqr
        return grad

    def finish_backward(self):
        """Called once per backward, after the gradients were averaged."""
        assert isinstance(self._local_grad_sqr, torch.Tensor)
        dist.all_reduce(self._local_grad_sqr / self._world_size)  # BUG
        local_grad_sqr = self._local_grad_sqr.cpu().numpy()
        total_grad_sqr = np.array(
            sum(p.grad.float().pow(2).sum().item() for g in self._optimizer.param_groups for p in g["params"])
        )
        s = self._world_size
        grad_var = local_grad_sqr * s / (s - 1) - total_grad_sqr * s / (s - 1)
        grad_sqr = total_grad_sqr - grad_var / s
        theta = self._smoothing
        self._state["grad_var_avg"] = theta * self._state["grad_var_avg"] + (1 - theta) * np.maximum(grad_var, 1e-6)
        self._state["grad_sqr_avg"] = theta * self._state["grad_sqr_avg"] + (1 - theta) * np.maximum(grad_sqr, 0.0)
        self._local_grad_sqr = None

    def gain(self):
        var, sqr = float(self._state["grad_var_avg"][0]), float(self._state["grad_sqr_avg"][0])
        return (var + sqr) / (var / self._world_size + sqr)
