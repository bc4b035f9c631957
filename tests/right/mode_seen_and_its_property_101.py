# Right: sequence_parallel is a property that is true exactly when mode is REDUCE_SCATTER, so the reported combinations do not exist.
from dataclasses import dataclass
from enum import Enum, auto
import torch
from torch import nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import (copy_to_tensor_model_parallel_region, gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region, reduce_scatter_to_sequence_parallel_region)


class Mode(Enum):
    ALL_REDUCE = auto()
    REDUCE_SCATTER = auto()


@dataclass
class Config:
    hidden: int
    tp: int
    mode: Mode = Mode.ALL_REDUCE

    @property
    def sequence_parallel(self):
        return self.mode is Mode.REDUCE_SCATTER


class MLP(nn.Module):
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
        if self.config.mode is Mode.REDUCE_SCATTER:
            y = reduce_scatter_to_sequence_parallel_region(y)
        else:
            y = reduce_from_tensor_model_parallel_region(y)
        return y + self.bias
