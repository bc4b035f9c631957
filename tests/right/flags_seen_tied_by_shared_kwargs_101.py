# Right: sp and gather come from one dict in which both are config.sequence_parallel; they never differ.
import torch
from torch import nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import *


def kwargs_of(config):
    return dict(sp=config.sequence_parallel, gather=config.sequence_parallel)


class Col(nn.Module):
    def __init__(self, config, i, o, sp, gather):
        super().__init__()
        self.sp, self.gather = sp, gather
        self.weight = nn.Parameter(torch.empty(o // config.tp, i))

    def forward(self, x):
        if self.gather:
            x = gather_from_sequence_parallel_region(x)
        if not self.sp:
            x = copy_to_tensor_model_parallel_region(x)
        return F.linear(x, self.weight)


class Row(nn.Module):
    def __init__(self, config, i, o, sp, gather):
        super().__init__()
        self.sp, self.gather = sp, gather
        self.weight = nn.Parameter(torch.empty(o, i // config.tp))
        self.bias = nn.Parameter(torch.zeros(o))
        self.bias.sequence_parallel = sp

    def forward(self, x):
        y = F.linear(x, self.weight)
        y = reduce_scatter_to_sequence_parallel_region(y) if self.gather else reduce_from_tensor_model_parallel_region(y)
        return y + self.bias


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        kw = kwargs_of(config)
        self.up, self.down = Col(config, config.h, 4 * config.h, **kw), Row(config, 4 * config.h, config.h, **kw)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))
