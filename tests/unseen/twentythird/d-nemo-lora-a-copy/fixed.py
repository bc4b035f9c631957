"""LoRA on a column-parallel linear, the down projection is kept whole on every rank."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


class LoRAColumnParallelLinear(torch.nn.Module):
    def __init__(self, w_shard, lora_a, lora_b_shard, alpha):
        super().__init__()
        self.weight = torch.nn.Parameter(w_shard, requires_grad=False)  # [out/tp, in]
        self.weight.tensor_model_parallel = True
        self.lora_a = torch.nn.Parameter(lora_a)  # [r, in], replicated
        self.lora_b = torch.nn.Parameter(lora_b_shard)  # [out/tp, r]
        self.lora_b.tensor_model_parallel = True
        self.scale = alpha / lora_a.size(0)

    def forward(self, x):
        # x is the same on every TP rank
        base = F.linear(copy_to_tensor_model_parallel_region(x), self.weight)
        mid = F.linear(x, self.lora_a)
        mid = copy_to_tensor_model_parallel_region(mid)
        delta = F.linear(mid, self.lora_b)
        return base + self.scale * delta
