"""AdaScale: estimate the gradient variance from the replicas' squared norms."""
import torch
import torch.distributed as dist


class AdaScale:
    def __init__(self, optimizer, world_size, device):
        self._optimizer, self._world_size = optimizer, world_size
        self._local_grad_sqr = torch.zeros((), device=device)
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.register_hook(self._backward_hook)

    def _backward_hook(self, grad):
        # runs before DDP averages the gradient
        self._local_grad_sqr += grad.pow(2).sum()

    def final_callback(self):
        """Gain of this step; must be the same on all replicas."""
        n = self._world_size
        self._local_grad_sqr /= n
        dist.all_reduce(self._local_grad_sqr)
        total_grad_sqr = sum(p.grad.pow(2).sum() for g in self._optimizer.param_groups for p in g["params"])
        grad_var = (self._local_grad_sqr - total_grad_sqr) * n / (n - 1)
        grad_sqr = total_grad_sqr - grad_var / n
        self._local_grad_sqr = torch.zeros_like(self._local_grad_sqr)
        return (grad_var + grad_sqr) / (grad_var / n + grad_sqr)
