import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class FrozenRowLinear(nn.Module):
    """Base layer of a LoRA adapter: its weight and bias do not learn."""

    def __init__(self, weight, bias, tp_size, rank=8):
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.tp_size = tp_size
        self.lora_a = nn.Parameter(torch.randn(rank, weight.size(1)) * 0.01)
        self.lora_b = nn.Parameter(torch.zeros(weight.size(0), rank))

    def forward(self, x):
        base = F.linear(x, self.weight, self.bias / self.tp_size)
        base = reduce_from_tensor_model_parallel_region(base)
        low = reduce_from_tensor_model_parallel_region(F.linear(x, self.lora_a))
        return base + F.linear(low, self.lora_b)
