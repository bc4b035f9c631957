# Reduces NeMo's LoRA adapters on a column-parallel layer: the low-rank activation is equal on all tensor-parallel
# ranks and feeds a column slice on each, so the gradient of lora_a and of the input lacks the other slices.
import torch
import torch.nn.functional as F
from torch import nn
from megatron.core import parallel_state
from megatron.core.tensor_parallel.layers import ColumnParallelLinear


class LoRAColumnParallelLinear(nn.Module):
    """A frozen column-parallel layer with an adapter; no sequence parallelism."""

    def __init__(self, base: ColumnParallelLinear, in_features, out_features, rank=16, alpha=32):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.empty(rank, in_features))  # replicated over tensor parallel
        self.lora_b = nn.Parameter(torch.zeros(out_features // tp, rank))  # rows of this rank
        nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)

    def forward(self, x):
        out, bias = self.base(x)
        low = F.linear(x, self.lora_a)
        delta = F.linear(low, self.lora_b)  # BUG
        return out + self.scale * delta, bias
