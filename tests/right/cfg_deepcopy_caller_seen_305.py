import copy
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region


class Tower(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.fc1 = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init_method, gather_output=False, skip_bias_add=False)
        self.fc2 = RowParallelLinear(config.f, config.h, config=config, init_method=config.init_method, input_is_parallel=True, bias=True, skip_bias_add=False)
        self.norm = torch.nn.LayerNorm(config.h)

    def forward(self, x):
        h, _ = self.fc1(self.norm(x))
        y, _ = self.fc2(F.gelu(h))
        return F.gelu(self.norm(y))


class Model(torch.nn.Module):
    def __init__(self, config, decoder):
        super().__init__()
        self.config = config
        vision = copy.deepcopy(config)
        vision.sequence_parallel = False
        self.tower = Tower(vision)
        self.decoder = decoder

    def forward(self, x):
        x = self.tower(x)
        if self.config.sequence_parallel:
            x = scatter_to_sequence_parallel_region(x)
        return self.decoder(x)
