import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region


class Moe(nn.Module):
    """One own expert gives terms for the rows of its tokens; the shared expert is cut over the same ranks."""

    def __init__(self, experts, width, inner):
        super().__init__()
        n = mpu.get_tensor_model_parallel_world_size()
        self.rank = mpu.get_tensor_model_parallel_rank()
        self.w = nn.Parameter(torch.empty(experts // n, width, width))
        self.up = nn.Parameter(torch.empty(inner // n, width))
        self.down = nn.Parameter(torch.empty(width, inner // n))

    def forward(self, x, expert):
        x = copy_to_tensor_model_parallel_region(x)
        out = F.linear(F.relu(F.linear(x, self.up)), self.down)
        mine = expert == self.rank
        out = out + (x @ self.w[0]) * mine.unsqueeze(-1)
        return reduce_from_tensor_model_parallel_region(out)
