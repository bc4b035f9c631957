"""Gradient norm in a ZeRO-1 style optimizer with an optional model-parallel unit."""
# Source: deepspeedai/DeepSpeed pull request 551 (confirmed from the thread)
import torch
import torch.distributed as dist


class FP16UnshardedOptimizer:
    """Data parallelism reduces whole gradients; mpu is None without model parallelism."""

    def __init__(self, init_optimizer, dp_process_group, clip_grad, mpu=None):
        self.optimizer, self.dp_process_group = init_optimizer, dp_process_group
        self.clip_grad, self.mpu = clip_grad, mpu
        self.model_parallel_group = mpu.get_model_parallel_group() if mpu is not None else None
        self.params = [p for group in init_optimizer.param_groups for p in group["params"]]

    def reduce_gradients(self):
        world = dist.get_world_size(self.dp_process_group)
        for p in self.params:
            if p.grad is not None:
                p.grad.div_(world)
                dist.all_reduce(p.grad, group=self.dp_process_group)

    def _model_parallel_all_reduce(self, tensor, op):
        dist.all_reduce(tensor, op=op, group=self.model_parallel_group)  # BUG

    def _counts_here(self, p):
        if self.mpu is None or self.mpu.get_model_parallel_rank() == 0:
            return True
        return getattr(p, "model_parallel", False)

    def get_grad_norm(self):
        total = torch.zeros((), device="cuda")
        for p in self.params:
            if p.grad is not None and self._counts_here(p):
                total += p.grad.float().norm(2) ** 2
        self._model_parallel_all_reduce(total, dist.ReduceOp.SUM)
        return total.sqrt()

    def step(self):
        self.reduce_gradients()
        norm = self.get_grad_norm()
        if self.clip_grad > 0:
            coef = torch.clamp(self.clip_grad / (norm + 1e-6), max=1.0)
            for p in self.params:
                if p.grad is not None:
                    p.grad.mul_(coef)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm
