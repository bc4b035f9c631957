"""LoRA branch of a column-parallel expert fc1.

Source: https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/5634
Wrong: lora_a is replicated and reads the already copied input; what comes back to it is the
gradient of this rank's output columns only, so lora_a gets a partial gradient on every rank.
Repair: the copy boundary of the branch stands after lora_a, in front of the sharded lora_b.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region


class ColumnParallelWithLoRA(nn.Module):
    def __init__(self, in_features, out_features, r, alpha, etp_group):
        super().__init__()
        shard = out_features // etp_group.size()
        self.etp_group = etp_group
        self.weight = nn.Parameter(torch.empty(shard, in_features), requires_grad=False)
        self.lora_a = nn.Parameter(torch.empty(r, in_features))  # the same on all ranks of etp_group
        self.lora_b = nn.Parameter(torch.zeros(shard, r))
        self.scale = alpha / r

    def forward(self, x):
        # x: [tokens, in], the same on all ranks of etp_group; out: [tokens, out / etp]
        x_parallel = copy_to_tensor_model_parallel_region(x, group=self.etp_group)
        base = F.linear(x_parallel, self.weight)
        mid = F.linear(x, self.lora_a)
        mid = copy_to_tensor_model_parallel_region(mid, group=self.etp_group)
        return base + self.scale * F.linear(mid, self.lora_b)
