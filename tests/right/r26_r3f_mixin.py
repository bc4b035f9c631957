# RIGHT: the mixin of another file reduces
import torch
from megatron.core import parallel_state
from .agree import AgreeMixin


class Optimizer(AgreeMixin):
    def overflows(self):
        grads = [p.grad for p in self.params]
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.inv_scale)
        self.agree_over(parallel_state.get_model_parallel_group())
        return self.found_inf.item() > 0
