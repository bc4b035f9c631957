"""A layer scale is applied to the partial product: its gradient is summed because it is copied in first."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
    set_tensor_model_parallel_attributes,
)


class ScaledMLP(torch.nn.Module):
    def __init__(self, hidden, ffn):
        super().__init__()
        n = parallel_state.get_tensor_model_parallel_world_size()
        self.n = n
        self.up = torch.nn.Parameter(torch.empty(ffn // n, hidden))
        self.down = torch.nn.Parameter(torch.empty(hidden, ffn // n))
        set_tensor_model_parallel_attributes(self.up, True, 0, 1)
        set_tensor_model_parallel_attributes(self.down, True, 1, 1)
        self.gamma = torch.nn.Parameter(torch.ones(hidden))
        self.bias = torch.nn.Parameter(torch.zeros(hidden))

    def forward(self, x):
        h = F.gelu(F.linear(copy_to_tensor_model_parallel_region(x), self.up))
        part = F.linear(h, self.down)
        part = part * copy_to_tensor_model_parallel_region(self.gamma)
        return reduce_from_tensor_model_parallel_region(part) + self.bias
