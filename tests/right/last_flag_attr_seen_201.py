import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M


class L(torch.nn.Module):
    def __init__(self, c, w, v):
        super().__init__()
        self.c = c
        self.w, self.v = torch.nn.Parameter(w), torch.nn.Parameter(v)
        self.w.tensor_model_parallel = self.v.tensor_model_parallel = True
        self.sequence_parallel = c.sequence_parallel
        self.scatter_input = c.layer == 0 and c.sequence_parallel
        self.gather_output = c.layer == c.n - 1 and c.sequence_parallel

    def forward(self, x):
        if self.scatter_input:
            x = M.scatter_to_sequence_parallel_region(x)
        r = x
        if self.sequence_parallel:
            x = M.gather_from_sequence_parallel_region(x)
        else:
            x = M.copy_to_tensor_model_parallel_region(x)
        if self.c.p1:
            x = x * 2
        if self.c.p2:
            x = x.float()
        y = F.linear(F.linear(x, self.w).relu(), self.v)
        if self.sequence_parallel:
            y = M.reduce_scatter_to_sequence_parallel_region(y)
        else:
            y = M.reduce_from_tensor_model_parallel_region(y)
        y = y + r
        if self.gather_output:
            y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
        return y
