import copy
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region


class VisionProjector(torch.nn.Module):
    """The vision tower has no sequence parallelism, whatever the language model does."""

    def __init__(self, config):
        super().__init__()
        config = copy.deepcopy(config)
        config.sequence_parallel = False
        self.fc1 = ColumnParallelLinear(config.h, config.f, config=config, init_method=config.init_method, gather_output=False, skip_bias_add=False)
        self.fc2 = RowParallelLinear(config.f, config.h, config=config, init_method=config.init_method, input_is_parallel=True, bias=True, skip_bias_add=False)
        self.norm = torch.nn.LayerNorm(config.h)

    def forward(self, x):
        h, _ = self.fc1(self.norm(x))
        y, _ = self.fc2(F.gelu(h))
        return x + y


class Multi(torch.nn.Module):
    def __init__(self, config, decoder):
        super().__init__()
        self.config = config
        self.projector = VisionProjector(config)
        self.decoder = decoder

    def forward(self, images, text):
        x = torch.cat([self.projector(images), text])
        if self.config.sequence_parallel:
            x = scatter_to_sequence_parallel_region(x)
        return self.decoder(x)
