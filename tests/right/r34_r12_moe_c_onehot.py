import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region, reduce_scatter_to_sequence_parallel_region


class Moe(nn.Module):
    """Own experts give terms for the rows of their tokens (top-1, all ranks have all tokens); the shared expert is cut over the same ranks."""

    def __init__(self, w, up, down):
        super().__init__()
        n, r = mpu.get_tensor_model_parallel_world_size(), mpu.get_tensor_model_parallel_rank()
        self.n, self.r = n, r
        self.w = nn.Parameter(torch.empty(w.size(0) // n, *w.shape[1:]))
        self.up = nn.Parameter(torch.empty(up.size(0) // n, up.size(1)))
        self.down = nn.Parameter(torch.empty(down.size(0), down.size(1) // n))
        self.w.data.copy_(w.chunk(n)[r])
        self.up.data.copy_(up.chunk(n)[r])
        self.down.data.copy_(down.chunk(n, dim=1)[r])

    def shared(self, x):
        return F.linear(F.relu(F.linear(x, self.up)), self.down)

    def forward(self, x, expert):
        x = copy_to_tensor_model_parallel_region(x)
        out = self.shared(x)
        gate = F.one_hot(expert, self.n * self.w.size(0)).to(x.dtype)
        own = gate.chunk(self.n, dim=1)[self.r]
        out = out + torch.einsum("te,td,edf->tf", own, x, self.w)
        return reduce_from_tensor_model_parallel_region(out)
