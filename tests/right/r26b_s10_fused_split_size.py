# RIGHT: the second weight has out / tp_size rows: split over tp, its gradient belongs to the rank
import torch
from megatron.core.utils import divide
from .kernels import fused_norm_linear


class Fused(torch.nn.Module):
    def __init__(self, config, size, out, tp_size):
        super().__init__()
        self.norm = torch.nn.Parameter(torch.ones(size))
        self.proj = torch.nn.Parameter(torch.empty(divide(out, tp_size), size))
        self.norm.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return fused_norm_linear(x, self.norm, self.proj)
