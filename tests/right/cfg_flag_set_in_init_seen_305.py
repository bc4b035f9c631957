import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import scatter_to_sequence_parallel_region


class Vision(torch.nn.Module):
    def __init__(self, config, **kw):
        super().__init__()
        config.sequence_parallel = False  # the tower's own configuration
        self.config = config
        self.col = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init_method, gather_output=False)
        self.row = RowParallelLinear(config.f, config.h, config=config, init_method=config.init_method, bias=True, input_is_parallel=True, skip_bias_add=False)
        self.norm = torch.nn.LayerNorm(config.h)

    def forward(self, x):
        h, _ = self.col(self.norm(x))
        y, _ = self.row(F.gelu(h))
        return F.gelu(self.norm(y))
