import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region


class Row(nn.Module):
    """The bias is cut over its features and put into the own columns before the sum: each column is added once."""

    def __init__(self, weight, bias):
        super().__init__()
        n, r = mpu.get_tensor_model_parallel_world_size(), mpu.get_tensor_model_parallel_rank()
        own = bias.numel() // n
        self.pads = (r * own, bias.numel() - (r + 1) * own)
        self.weight = nn.Parameter(torch.empty(weight.size(0), weight.size(1) // n))
        self.bias = nn.Parameter(torch.empty(own))
        self.weight.data.copy_(weight.chunk(n, dim=1)[r])
        self.bias.data.copy_(bias.chunk(n)[r])

    def forward(self, x_part):
        y = F.linear(x_part, self.weight) + F.pad(self.bias, self.pads)
        return reduce_from_tensor_model_parallel_region(y)
