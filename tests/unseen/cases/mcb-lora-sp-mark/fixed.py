"""LoRA on tensor-parallel linears (mcore-bridge style)."""
# modelscope/mcore-bridge PR 173: with sequence parallelism the replicated factor sees only this rank's tokens, and is not marked.
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class RowParallelBase(nn.Module):
    def __init__(self, weight_shard, sequence_parallel):
        super().__init__()
        self.weight = nn.Parameter(weight_shard, requires_grad=False)
        self.weight.tensor_model_parallel = True
        self.sequence_parallel = sequence_parallel

    def forward(self, x):
        out = F.linear(x, self.weight)
        if self.sequence_parallel:
            return reduce_scatter_to_sequence_parallel_region(out)
        return reduce_from_tensor_model_parallel_region(out)


class LoraRowParallelLinear(nn.Module):
    """lora_A is split like the base layer's input, lora_B is whole on every rank."""

    def __init__(self, base_layer, in_features_local, out_features, r, alpha, config):
        super().__init__()
        self.base_layer = base_layer
        self.sequence_parallel = config.sequence_parallel
        self.scaling = alpha / r
        self.lora_A = nn.Parameter(torch.empty(r, in_features_local))
        self.lora_A.tensor_model_parallel = True
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.lora_B = nn.Parameter(torch.zeros(out_features, r))
        setattr(self.lora_B, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        out = self.base_layer(x)
        low = F.linear(x, self.lora_A)
        if self.sequence_parallel:
            low = reduce_scatter_to_sequence_parallel_region(low)
        else:
            low = reduce_from_tensor_model_parallel_region(low)
        return out + F.linear(low, self.lora_B) * self.scaling


class MLP(nn.Module):
    def __init__(self, fc1_shard, fc2_shard, r, alpha, config):
        super().__init__()
        self.fc1 = nn.Parameter(fc1_shard, requires_grad=False)
        self.fc1.tensor_model_parallel = True
        self.sequence_parallel = config.sequence_parallel
        base = RowParallelBase(fc2_shard, config.sequence_parallel)
        self.linear_fc2 = LoraRowParallelLinear(
            base, fc2_shard.size(1), fc2_shard.size(0), r, alpha, config
        )

    def forward(self, hidden_states):
        # hidden_states: [s/tp, b, h] with sequence parallelism, [s, b, h] without
        if self.sequence_parallel:
            hidden_states = gather_from_sequence_parallel_region(hidden_states)
        else:
            hidden_states = copy_to_tensor_model_parallel_region(hidden_states)
        return self.linear_fc2(F.gelu(F.linear(hidden_states, self.fc1)))
