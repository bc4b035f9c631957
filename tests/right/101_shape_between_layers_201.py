import torch
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region


class Mlp(torch.nn.Module):
    def __init__(self, h, f, tp):
        super().__init__()
        self.a = torch.nn.Parameter(torch.empty(f // tp, h))
        self.b = torch.nn.Parameter(torch.empty(h, f // tp))

    def forward(self, x):
        # all ranks see the whole x; between the layers it is [s, b, f/tp]
        y = torch.nn.functional.gelu(torch.nn.functional.linear(copy_to_tensor_model_parallel_region(x), self.a))
        return x + reduce_from_tensor_model_parallel_region(torch.nn.functional.linear(y, self.b))
