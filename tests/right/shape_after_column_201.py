import torch
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region


class Mlp(torch.nn.Module):
    def __init__(self, h, f, tp):
        super().__init__()
        self.a = torch.nn.Parameter(torch.empty(f // tp, h))
        self.b = torch.nn.Parameter(torch.empty(h, f // tp))

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        x = torch.nn.functional.linear(x, self.a)
        # x: [s, b, f/tp]
        x = torch.nn.functional.gelu(x)
        return reduce_from_tensor_model_parallel_region(torch.nn.functional.linear(x, self.b))
