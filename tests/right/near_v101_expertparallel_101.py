import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class Experts(torch.nn.Module):
    def __init__(self, up, down, config):
        super().__init__()
        self.up, self.down = torch.nn.Parameter(up), torch.nn.Parameter(down)
        self.up.tensor_model_parallel = True
        self.down.tensor_model_parallel = True
        self.sequence_parallel = config.sequence_parallel
        self.tp = config.tensor_model_parallel_size
        assert self.sequence_parallel or self.tp == 1

    def forward(self, x):
        h = gather_from_sequence_parallel_region(x) if self.sequence_parallel else x
        out = F.linear(F.gelu(F.linear(h, self.up)), self.down)
        if self.sequence_parallel:
            return reduce_scatter_to_sequence_parallel_region(out)
        return reduce_from_tensor_model_parallel_region(out)
