# What it does: a row-parallel layer that, while decoding, sums in place.
# Why it is right: the branch runs only where gradients are off; the values are right: all ranks have the sum, and the same bias.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import reduce_scatter_to_sequence_parallel_region


class Row(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, k // mpu.get_tensor_model_parallel_world_size()))
        self.weight.tensor_model_parallel = True
        self.weight.partition_dim = 1
        self.bias = nn.Parameter(torch.zeros(n))
        self.bias.sequence_parallel = True

    def forward(self, x):
        y = F.linear(x, self.weight)
        if not torch.is_grad_enabled():
            dist.all_reduce(y, group=mpu.get_tensor_model_parallel_group())
            return y + self.bias
        return reduce_scatter_to_sequence_parallel_region(y) + self.bias
