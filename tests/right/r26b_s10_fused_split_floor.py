# RIGHT: proj has out // tp rows: split over tp, its gradient belongs to the rank
import torch
from megatron.core import parallel_state as mpu
from .kernels import fused_norm_linear


class Fused(torch.nn.Module):
    def __init__(self, config, size, out):
        super().__init__()
        tp = mpu.get_tensor_model_parallel_world_size()
        self.norm = torch.nn.Parameter(torch.ones(size))
        self.proj = torch.nn.Parameter(torch.empty(out // tp, size))
        self.norm.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return fused_norm_linear(x, self.norm, self.proj)
