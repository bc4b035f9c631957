import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M


class A(torch.nn.Module):
    def __init__(self, c, w, depth):
        super().__init__()
        self.c = c
        self.w = torch.nn.Parameter(w)
        self.w.tensor_model_parallel = True
        self.deep = depth >= c.limit

    def forward(self, x):
        h = F.linear(M.copy_to_tensor_model_parallel_region(x), self.w)
        if self.c.whole:
            h = M.gather_from_tensor_model_parallel_region(h)
        h = h * 2
        if self.deep and self.c.whole:
            return h.softmax(-1)
        if self.deep or not self.c.whole:
            return h.relu()
        return h.log_softmax(-1)
