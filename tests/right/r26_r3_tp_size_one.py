# RIGHT: asserts that there is no model parallelism
import torch
from megatron.core import parallel_state


class Optimizer:
    def __init__(self, params, scaler):
        assert parallel_state.get_tensor_model_parallel_world_size() == 1
        assert parallel_state.get_pipeline_model_parallel_world_size() == 1
        self.params, self.scaler = params, scaler
        self.found_inf = torch.zeros(1, device="cuda")

    def overflows(self):
        grads = [p.grad for p in self.params]
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.scaler.inv_scale)
        return self.found_inf.item() > 0
