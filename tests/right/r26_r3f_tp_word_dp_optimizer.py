# RIGHT: the file mentions tensor parallelism only in an error, gradients are whole on all ranks
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Optimizer:
    def __init__(self, model: DDP, scaler, tensor_parallel_size=1):
        if tensor_parallel_size != 1:
            raise NotImplementedError("tensor parallelism")
        self.params, self.scaler = list(model.parameters()), scaler
        self.found_inf = torch.zeros(1, device="cuda")

    def overflows(self):
        grads = [p.grad for p in self.params]
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.scaler.inv_scale)
        return self.found_inf.item() > 0
