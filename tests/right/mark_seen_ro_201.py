import torch
from torch import nn
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, ColumnParallelLinear

class Base(nn.Module):
    def tag(self, sp):
        for p in self.parameters():
            p.sequence_parallel = sp


class Norm(nn.Module):
    def __init__(self, size, sp):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        Base.tag(self, sp)

    def forward(self, x):
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


class M(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = Norm(config.hidden_size, config.sequence_parallel)

    def forward(self, h):
        v = self.norm(h)
        if self.config.sequence_parallel:
            v = gather_from_sequence_parallel_region(v, tensor_parallel_output_grad=False)
        return v
