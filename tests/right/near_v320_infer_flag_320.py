import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class Row(nn.Module):
    def __init__(self, weight, bias, tp_size):
        super().__init__()
        self.weight, self.bias, self.tp_size = nn.Parameter(weight), nn.Parameter(bias), tp_size

    def forward(self, x):
        if not self.training:
            # one kernel less when decoding
            return reduce_from_tensor_model_parallel_region(F.linear(x, self.weight, self.bias / self.tp_size))
        return reduce_from_tensor_model_parallel_region(F.linear(x, self.weight)) + self.bias
