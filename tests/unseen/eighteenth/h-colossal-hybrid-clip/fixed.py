"""Gradient norm of a hybrid-parallel model.

Source: hpcaitech/ColossalAI, pull request #4837. Parameters that are not cut by the tensor
parallelism are the same on all tensor ranks, and so are their gradients: summing the squares over
the group counts them tp_size times.
"""
import torch
import torch.distributed as dist


def is_distributed_tensor(param):
    return getattr(param, "dist_layout", None) is not None


class HybridParallelOptimizer:
    def __init__(self, optim, tp_group, pp_group, max_norm):
        # each pipeline stage owns other parameters; none is shared between stages
        self.optim, self.max_norm = optim, max_norm
        self.tp_group, self.pp_group = tp_group, pp_group
        self.tp_size = dist.get_world_size(tp_group)
        self.pp_size = dist.get_world_size(pp_group)

    def _params(self):
        for group in self.optim.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    yield p

    def compute_grad_norm(self):
        # gradients have been averaged over the data ranks, and are complete on each tensor rank
        total = torch.zeros(1, dtype=torch.float64, device="cuda")
        for p in self._params():
            square = p.grad.detach().double().pow(2).sum()
            if not is_distributed_tensor(p):
                square = square / self.tp_size
            total += square
        if self.tp_size > 1:
            dist.all_reduce(total, group=self.tp_group)
        if self.pp_size > 1:
            dist.all_reduce(total, group=self.pp_group)
        return total.sqrt().item()

    def step(self):
        norm = self.compute_grad_norm()
        if norm > self.max_norm:
            for p in self._params():
                p.grad.mul_(self.max_norm / (norm + 1e-6))
        self.optim.step()
        return norm
