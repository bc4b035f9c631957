import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import scatter_to_sequence_parallel_region, gather_from_sequence_parallel_region


class Vit(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        was = config.sequence_parallel
        config.sequence_parallel = False
        self.col = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init_method, gather_output=False)
        self.row = RowParallelLinear(config.f, config.h, config=config, init_method=config.init_method, bias=True, input_is_parallel=True, skip_bias_add=False)
        config.sequence_parallel = was

    def forward(self, x):
        # the layers keep the flag of the time they were made: none
        h, _ = self.col(x)
        y, _ = self.row(F.gelu(h))
        if self.config.sequence_parallel:
            y = scatter_to_sequence_parallel_region(y)
        return y
