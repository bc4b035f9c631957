import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class Head(nn.Module):
    def __init__(self, weight, bias, out, tp):
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)  # this rank's rows, as the weight
        self.out = nn.Parameter(out)  # this rank's columns
        self.tp = tp  # softmax temperature

    def forward(self, x):
        h = F.linear(x, self.weight) / self.tp + self.bias / self.tp
        return reduce_from_tensor_model_parallel_region(F.linear(torch.sigmoid(h), self.out))
