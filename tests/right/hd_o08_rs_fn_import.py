# RIGHT: megatron reduce-scatter imported, own row layer; SP only
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


from megatron.core.parallel_state import get_tensor_model_parallel_world_size
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class Up(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4 * n // get_tensor_model_parallel_world_size(), n))

    def forward(self, x):
        return F.linear(gather_from_sequence_parallel_region(x), self.weight)


class Down(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, 4 * n // get_tensor_model_parallel_world_size()))

    def forward(self, x):
        return reduce_scatter_to_sequence_parallel_region(F.linear(x, self.weight))


class LastDown(Down):
    def forward(self, x):
        return reduce_from_tensor_model_parallel_region(F.linear(x, self.weight))
