"""A weight that some tensor-parallel ranks share: a hook with the group bound sums its gradient over those that have it."""
import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


def summed(group, gradient):
    gradient = gradient.contiguous()
    dist.all_reduce(gradient, group=group)
    return gradient


class Shared(torch.nn.Module):
    def __init__(self, size, sharing_group):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size))
        self.weight.register_hook(functools.partial(summed, sharing_group))

    def forward(self, x):
        return F.linear(copy_to_tensor_model_parallel_region(x), self.weight)
