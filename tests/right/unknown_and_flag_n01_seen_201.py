
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M
from megatron.core import parallel_state as ps

class L(torch.nn.Module):
    def __init__(self, c, w, v, n):
        super().__init__()
        self.c = c
        self.w, self.v = torch.nn.Parameter(w), torch.nn.Parameter(v)
        self.w.tensor_model_parallel = self.v.tensor_model_parallel = True
        self.last = n == c.n
        self.first = n == 1
        self.sp = c.sequence_parallel

    def forward(self, x):
        sp = self.c.sequence_parallel
        if sp:
            x = M.gather_from_sequence_parallel_region(x)
        else:
            x = M.copy_to_tensor_model_parallel_region(x)
        y = F.linear(F.linear(x, self.w).relu(), self.v)
        if sp:
            y = M.reduce_scatter_to_sequence_parallel_region(y)
        else:
            y = M.reduce_from_tensor_model_parallel_region(y)
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False) if self.last and sp else y
        return y
