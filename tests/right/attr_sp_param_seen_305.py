import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.module import MegatronModule


class Ff(MegatronModule):
    def __init__(self, config, sequence_parallel=None):
        super().__init__(config)
        self.sequence_parallel = config.sequence_parallel if sequence_parallel is None else sequence_parallel
        self.col = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init_method, gather_output=False, bias=False)
        self.row = RowParallelLinear(config.f, config.h, config=config, init_method=config.init_method, bias=False, input_is_parallel=True, skip_bias_add=False)
        self.col.sequence_parallel = self.sequence_parallel
        self.col.allreduce_dgrad = not self.sequence_parallel
        self.row.sequence_parallel = self.sequence_parallel

    def forward(self, x):
        return self.row(F.gelu(self.col(x)[0]))[0]


class Both(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.first = Ff(config, sequence_parallel=False)
        self.second = Ff(config)
        self.norm = torch.nn.LayerNorm(config.h)

    def forward(self, x):
        x = self.norm(self.first(x))
        if self.config.sequence_parallel:
            x = M.scatter_to_sequence_parallel_region(x)
        x = self.second(x)
        if self.config.sequence_parallel:
            x = M.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        return self.norm(x)
