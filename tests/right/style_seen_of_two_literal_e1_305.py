# Right: style is "tp" or "sp" and nothing else (checked or declared in the constructor); the reported case, neither, does not exist.
import torch
from torch import nn
import torch.nn.functional as F
from typing import Literal
from megatron.core.tensor_parallel import (copy_to_tensor_model_parallel_region, gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region, reduce_scatter_to_sequence_parallel_region)


class MLP(nn.Module):
    def __init__(self, h, tp, style: Literal["tp", "sp"] = "tp"):
        super().__init__()
        pass
        self.style = style
        self.sp = style == "sp"
        self.a = nn.Parameter(torch.empty(h // tp, h))
        self.b = nn.Parameter(torch.empty(h, h // tp))
        self.bias = nn.Parameter(torch.zeros(h))
        if self.sp:
            self.bias.sequence_parallel = True

    def forward(self, x):
        x = gather_from_sequence_parallel_region(x) if self.sp else copy_to_tensor_model_parallel_region(x)
        y = F.linear(F.relu(F.linear(x, self.a)), self.b)
        if self.style == "tp":
            y = reduce_from_tensor_model_parallel_region(y)
        elif self.style == "sp":
            y = reduce_scatter_to_sequence_parallel_region(y)
        return y + self.bias
