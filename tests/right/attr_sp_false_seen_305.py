import copy
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region, copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region, reduce_scatter_to_sequence_parallel_region


class Tower(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.fc1 = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init_method, gather_output=False, skip_bias_add=False)
        self.fc1.sequence_parallel = False
        self.fc1.allreduce_dgrad = True
        self.fc2 = RowParallelLinear(config.f, config.h, config=config, init_method=config.init_method, input_is_parallel=True, bias=False, skip_bias_add=False)
        self.fc2.sequence_parallel = False
        self.norm = torch.nn.LayerNorm(config.h)

    def forward(self, x):
        h, _ = self.fc1(self.norm(x))
        y, _ = self.fc2(F.gelu(h))
        return F.gelu(self.norm(y))


class Model(torch.nn.Module):
    def __init__(self, config, decoder):
        super().__init__()
        self.config = config
        self.tower = Tower(config)
        self.decoder = decoder

    def forward(self, x):
        if self.config.sequence_parallel:
            x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        x = self.tower(x)
        if self.config.sequence_parallel:
            x = scatter_to_sequence_parallel_region(x)
        return self.decoder(x)
