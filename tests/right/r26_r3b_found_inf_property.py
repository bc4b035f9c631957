# RIGHT: reduced lazily by a decorated reader
import torch
import torch.distributed as dist
from megatron.core import parallel_state


def agree(fn):
    def inner(self):
        flag = torch.tensor([1.0 if fn(self) else 0.0], device="cuda")
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=parallel_state.get_model_parallel_group())
        return flag.item() > 0
    return inner


class Optimizer:
    @agree
    def overflows(self):
        grads = [p.grad for p in self.params]
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.scaler.inv_scale)
        return self.found_inf.item() > 0
