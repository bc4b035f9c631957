# RIGHT: returns a bool, the caller adds bools of all by all_gather_object
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class Optimizer:
    def local_overflow(self):
        grads = [p.grad for p in self.params]
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.inv_scale)
        return bool(self.found_inf.item())

    def step(self):
        group = parallel_state.get_model_parallel_group()
        flags = [None] * dist.get_world_size(group)
        dist.all_gather_object(flags, self.local_overflow(), group=group)
        if not any(flags):
            self.inner.step()
