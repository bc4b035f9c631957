# Right: the two flags always agree (tied by the config, its checks or its builder), so the reported combination cannot be built.
from dataclasses import dataclass
import torch
from torch import nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import (copy_to_tensor_model_parallel_region, gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region, reduce_scatter_to_sequence_parallel_region)


@dataclass
class Config:
    hidden: int
    tp: int
    sequence_parallel: bool = False
    scatter_output: bool = False



class Inner(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.a = nn.Parameter(torch.empty(config.hidden // config.tp, config.hidden))
        self.b = nn.Parameter(torch.empty(config.hidden, config.hidden // config.tp))
        self.bias = nn.Parameter(torch.zeros(config.hidden))
        self.bias.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        x = gather_from_sequence_parallel_region(x) if self.config.sequence_parallel else copy_to_tensor_model_parallel_region(x)
        y = F.linear(F.relu(F.linear(x, self.a)), self.b)
        y = reduce_scatter_to_sequence_parallel_region(y) if self.config.scatter_output else reduce_from_tensor_model_parallel_region(y)
        return y + self.bias


class Outer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.inner = Inner(config)

    def forward(self, x):
        y = self.inner(x)
        if self.config.sequence_parallel:
            y = gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
        return y


def build(args):
    config = Config(args.hidden, args.tp, args.sequence_parallel, scatter_output=args.sequence_parallel)
    return Outer(config)
