"""LoRA on a column-parallel linear: A is replicated, B is cut like the base weight."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


class LoraColumnParallelLinear(torch.nn.Module):
    def __init__(self, base_weight_shard, in_features, r, lora_b_shard, lora_alpha):
        super().__init__()
        self.weight = torch.nn.Parameter(base_weight_shard, requires_grad=False)  # [out/tp, in]
        self.weight.tensor_model_parallel = True
        self.lora_A = torch.nn.Linear(in_features, r, bias=False)  # replicated over TP
        self.lora_B = torch.nn.Parameter(lora_b_shard)  # [out/tp, r]
        self.lora_B.tensor_model_parallel = True
        self.scaling = lora_alpha / r

    def forward(self, x):
        # x is the same on every TP rank
        result = F.linear(copy_to_tensor_model_parallel_region(x), self.weight)
        h = self.lora_A(x)
        h = copy_to_tensor_model_parallel_region(h)
        return result + F.linear(h, self.lora_B) * self.scaling
