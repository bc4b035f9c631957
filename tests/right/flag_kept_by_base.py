import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel.mappings import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class Parallel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.sp = cfg.sp

    def leave(self, x):
        if self.sp:
            return reduce_scatter_to_sequence_parallel_region(x)
        return reduce_from_tensor_model_parallel_region(x)


class Row(Parallel):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.weight = nn.Parameter(torch.empty(cfg.hidden, cfg.hidden // cfg.tp))

    def forward(self, x):
        return self.leave(F.linear(x, self.weight))


class Sum(Parallel):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.a = Row(cfg)
        self.b = Row(cfg)

    def forward(self, x):
        return self.a(x) + self.b(x)


class Other(Parallel):
    def __init__(self, cfg):
        super().__init__(cfg)


class Third(Parallel):
    def __init__(self, cfg):
        super().__init__(cfg)
