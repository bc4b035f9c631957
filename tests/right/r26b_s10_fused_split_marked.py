# RIGHT: layer norm weight is whole and marked; the linear weight is split over tp and says so (its gradient is that of its part)
import torch
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
from .kernels import fused_norm_linear


class LayerNormLinear(torch.nn.Module):
    def __init__(self, config, size, part):
        super().__init__()
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(size))
        self.weight = torch.nn.Parameter(torch.empty(part, size))
        setattr(self.layer_norm_weight, "sequence_parallel", config.sequence_parallel)
        set_tensor_model_parallel_attributes(self.weight, True, 0, 1)

    def forward(self, x):
        return fused_norm_linear(x, self.layer_norm_weight, self.weight)
