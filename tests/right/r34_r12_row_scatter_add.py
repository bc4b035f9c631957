import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region


class Experts(nn.Module):
    """Own experts' results go to the rows of their tokens; shared rows of the weight give a term as well."""

    def __init__(self, w, shared_up, shared_down):
        super().__init__()
        n, r = mpu.get_tensor_model_parallel_world_size(), mpu.get_tensor_model_parallel_rank()
        self.n, self.r = n, r
        self.w = nn.Parameter(torch.empty(w.size(0) // n, *w.shape[1:]))
        self.up = nn.Parameter(torch.empty(shared_up.size(0) // n, shared_up.size(1)))
        self.down = nn.Parameter(torch.empty(shared_down.size(0), shared_down.size(1) // n))
        self.w.data.copy_(w.chunk(n)[r])
        self.up.data.copy_(shared_up.chunk(n)[r])
        self.down.data.copy_(shared_down.chunk(n, dim=1)[r])

    def forward(self, x, expert):
        x = copy_to_tensor_model_parallel_region(x)
        out = F.linear(F.relu(F.linear(x, self.up)), self.down)
        for i in range(self.w.size(0)):
            rows = (expert == self.r * self.w.size(0) + i).nonzero()[:, 0]
            out = out.index_add(0, rows, x[rows] @ self.w[i])
        return reduce_from_tensor_model_parallel_region(out)
