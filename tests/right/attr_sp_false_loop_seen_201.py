import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region, gather_from_sequence_parallel_region, gather_from_tensor_model_parallel_region


class Fused(torch.nn.Module):
    """One gather for two layers that get a gathered input."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        kw = dict(config=config, init_method=config.init_method, bias=False, gather_output=False, disable_grad_reduce=True)
        self.a = ColumnParallelLinear(config.h, config.f, **kw)
        self.b = ColumnParallelLinear(config.h, config.f, **kw)
        for layer in (self.a, self.b):
            layer.sequence_parallel = False
        self.out = RowParallelLinear(config.f, config.h, config=config, init_method=config.init_method, bias=False, input_is_parallel=True, skip_bias_add=False)

    def forward(self, x):
        if self.config.sequence_parallel:
            x = gather_from_sequence_parallel_region(x)
        else:
            x = copy_to_tensor_model_parallel_region(x)
        h = self.a(x)[0] * F.silu(self.b(x)[0])
        return self.out(h)[0]
