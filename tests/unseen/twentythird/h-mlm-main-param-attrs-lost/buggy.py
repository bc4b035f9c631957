"""FP32 main parameters of a half-precision optimizer."""
import torch
from megatron.core import parallel_state, tensor_parallel


def param_is_not_tensor_parallel_duplicate(param):
    return (
        getattr(param, "tensor_model_parallel", False)
        or parallel_state.get_tensor_model_parallel_rank() == 0
    )


class Float16OptimizerWithFloat16Params:
    def __init__(self, model_params):
        self.model_params = list(model_params)
        self.main_params = []
        for param in self.model_params:
            main_param = param.detach().clone().float()  # BUG: loses tensor_model_parallel
            self.main_params.append(main_param)

    def copy_model_grads_to_main_grads(self):
        for model_param, main_param in zip(self.model_params, self.main_params):
            main_param.grad = model_param.main_grad.float()

    def clip_grad_norm(self, max_norm):
        total = torch.zeros(1, device="cuda")
        for param in self.main_params:
            if param_is_not_tensor_parallel_duplicate(param):
                total += param.grad.norm(2) ** 2
        torch.distributed.all_reduce(total, group=parallel_state.get_model_parallel_group())
        coeff = (max_norm / (total.sqrt() + 1.0e-6)).clamp(max=1.0)
        for param in self.main_params:
            param.grad.mul_(coeff)
        return total.sqrt()


def tag(weight):
    tensor_parallel.set_tensor_model_parallel_attributes(weight, is_parallel=True, dim=0, stride=1)
