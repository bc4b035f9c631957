import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class Moe(nn.Module):
    def __init__(self, experts, width, inner):
        super().__init__()
        n = mpu.get_tensor_model_parallel_world_size()
        self.w = nn.Parameter(torch.empty(experts // n, width, width))
        self.down = nn.Parameter(torch.empty(width, inner // n))

    def forward(self, h, x, rows):
        # h: own features; rows: tokens of the own expert
        out = F.linear(h, self.down)
        out = out.index_add(0, rows, x[rows] @ self.w[0])
        return reduce_from_tensor_model_parallel_region(out)
