import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M


class Norm(torch.nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.c = c
        self.last = index == c.n
        self.weight = torch.nn.Parameter(torch.ones(c.h))
        setattr(self.weight, "sequence_parallel", c.sequence_parallel)

    def forward(self, p):
        if self.c.sequence_parallel:
            x = M.reduce_scatter_to_sequence_parallel_region(p)
        else:
            x = M.reduce_from_tensor_model_parallel_region(p)
        x = F.rms_norm(x, (self.c.h,), self.weight)
        if self.last and self.c.sequence_parallel:
            x = M.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        return x
