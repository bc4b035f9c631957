"""the per-rank tensor is a buffer of statistics, which no gradient and no norm sees; the weight is marked."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class ObservedColumn(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        per_rank = output_size // tp
        self.weight = nn.Parameter(torch.empty(per_rank, input_size))
        set_tensor_model_parallel_attributes(self.weight, True, 0, 1)
        self.amax = nn.Parameter(torch.zeros(per_rank), requires_grad=False)
        self.register_buffer("count", torch.zeros(per_rank))

    def forward(self, x):
        y = F.linear(x, self.weight)
        with torch.no_grad():
            self.amax.data = torch.maximum(self.amax, y.flatten(0, -2).abs().amax(0))
            self.count += y.shape[0]
        return y
