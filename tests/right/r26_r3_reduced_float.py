# RIGHT: local python bool is reduced afterwards as a tensor
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class Optimizer:
    def overflows_here(self):
        grads = [p.grad for p in self.params]
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.scaler.inv_scale)
        return self.found_inf.item() > 0

    def step(self):
        flag = torch.tensor([float(self.overflows_here())], device="cuda")
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=parallel_state.get_model_parallel_group())
        if flag.item() == 0:
            self.inner.step()
