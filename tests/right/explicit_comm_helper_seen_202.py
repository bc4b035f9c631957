import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region, copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region, reduce_scatter_to_sequence_parallel_region


def take_over_communication(module):
    for m in module.modules():
        if isinstance(m, (ColumnParallelLinear, RowParallelLinear)):
            m.explicit_expert_comm = True


class Ff(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.fc1 = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init_method, gather_output=False, bias=False)
        self.fc2 = RowParallelLinear(config.f, config.h, config=config, init_method=config.init_method, input_is_parallel=True, bias=False, skip_bias_add=True)
        take_over_communication(self)

    def forward(self, x):
        if self.config.sequence_parallel:
            x = gather_from_sequence_parallel_region(x)
        else:
            x = copy_to_tensor_model_parallel_region(x)
        y = self.fc2(F.gelu(self.fc1(x)[0]))[0]
        if self.config.sequence_parallel:
            return reduce_scatter_to_sequence_parallel_region(y)
        return reduce_from_tensor_model_parallel_region(y)
