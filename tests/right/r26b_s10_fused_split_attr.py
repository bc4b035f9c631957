# RIGHT: proj is marked tensor_model_parallel: split over tp, its gradient belongs to the rank
import torch
import megatron.core
from .kernels import fused_norm_linear


class Fused(torch.nn.Module):
    def __init__(self, config, size, part):
        super().__init__()
        self.norm = torch.nn.Parameter(torch.ones(size))
        self.proj = torch.nn.Parameter(torch.empty(part, size))
        self.norm.sequence_parallel = config.sequence_parallel
        self.proj.tensor_model_parallel = True

    def forward(self, x):
        return fused_norm_linear(x, self.norm, self.proj)
