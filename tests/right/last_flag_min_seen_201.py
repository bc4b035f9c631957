import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M


class L(torch.nn.Module):
    def __init__(self, c, w, v):
        super().__init__()
        self.c = c
        self.w, self.v = torch.nn.Parameter(w), torch.nn.Parameter(v)
        self.w.tensor_model_parallel = self.v.tensor_model_parallel = True
        self.is_last = c.layer == c.n - 1

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
        if self.is_last and sp:
            y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
        return y
