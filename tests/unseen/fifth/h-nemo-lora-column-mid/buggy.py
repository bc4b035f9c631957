"""LoRA on a column-parallel linear: A is replicated, B is split over its rows."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, copy_to_tensor_model_parallel_region


class LoRAColumnLinear(torch.nn.Module):
    def __init__(self, base: ColumnParallelLinear, in_features, out_features, rank, alpha):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.base = base
        self.scale = alpha / rank
        self.lora_a = torch.nn.Parameter(torch.empty(rank, in_features))
        self.lora_b = torch.nn.Parameter(torch.zeros(out_features // tp, rank))
        self.lora_b.tensor_model_parallel = True

    def forward(self, x):
        out, bias = self.base(x)
        mid = F.linear(x, self.lora_a)
        delta = F.linear(mid, self.lora_b)  # BUG: the gradient of mid is partial over TP
        return out + self.scale * delta, bias
