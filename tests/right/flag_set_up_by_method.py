import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel.mappings import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class Row(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(cfg.hidden, cfg.hidden // cfg.tp))
        self.setup(cfg)

    def setup(self, cfg):
        self.sp = cfg.sp

    def forward(self, x):
        x = F.linear(x, self.weight)
        return reduce_scatter_to_sequence_parallel_region(x) if self.sp else reduce_from_tensor_model_parallel_region(x)


class Sum(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.a = Row(cfg)
        self.b = Row(cfg)

    def forward(self, x):
        return self.a(x) + self.b(x)
