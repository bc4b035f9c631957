import torch
import torch.distributed as dist
from torch import nn
from megatron.core import parallel_state as ps
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region


class ValueModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, h):
        v = self.norm(h)
        if self.config.sequence_parallel:
            v = gather_from_sequence_parallel_region(v, tensor_parallel_output_grad=False)
        return v


@torch.no_grad()
def values(config, h):
    return ValueModel(config)(h)
