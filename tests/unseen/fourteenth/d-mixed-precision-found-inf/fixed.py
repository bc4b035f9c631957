# Reduces Megatron-LM's mixed precision optimizer: each tensor-parallel rank looks for inf/nan in its own shard and
# decides alone whether to skip the step and how to change the loss scale.
import torch
import torch.distributed as dist


class DynamicGradScaler:
    def __init__(self, initial_scale=2.0**16, growth_interval=1000):
        self._scale = torch.full((1,), initial_scale, device="cuda")
        self._growth_interval, self._good_steps = growth_interval, 0

    @property
    def inv_scale(self):
        return self._scale.double().reciprocal().float()

    def update(self, found_inf):
        if found_inf:
            self._scale, self._good_steps = torch.clamp(self._scale * 0.5, min=1.0), 0
        else:
            self._good_steps += 1
            if self._good_steps == self._growth_interval:
                self._scale, self._good_steps = self._scale * 2.0, 0


class Float16Optimizer:
    """Gradients arrive averaged over data parallel; weights are sharded over tensor parallel."""

    def __init__(self, optimizer, params, scaler, model_parallel_group):
        self.optimizer, self.params, self.grad_scaler = optimizer, params, scaler
        self.model_parallel_group = model_parallel_group
        self.found_inf = torch.zeros(1, device="cuda")

    def _unscale_and_check(self):
        grads = [p.grad for p in self.params if p.grad is not None]
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.grad_scaler.inv_scale)
        dist.all_reduce(self.found_inf, op=dist.ReduceOp.MAX, group=self.model_parallel_group)
        return self.found_inf.item() > 0

    def step(self):
        found_inf = self._unscale_and_check()
        self.grad_scaler.update(found_inf)
        if found_inf:
            return False
        self.optimizer.step()
        return True
