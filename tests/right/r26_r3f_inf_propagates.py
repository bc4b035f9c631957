# RIGHT: the loss is scaled after a max over model-parallel ranks, gradients are NaN on all ranks when one is, by an all-reduced norm that multiplies them
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class Optimizer:
    def poison(self):
        total = sum(p.grad.float().sum() for p in self.params) * 0.0
        dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
        for p in self.params:
            p.grad.add_(total)

    def overflows(self):
        self.poison()
        grads = [p.grad for p in self.params]
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.inv_scale)
        return self.found_inf.item() > 0
