"""Parallel residual layer (GPT-J): one reduction for attention and MLP."""
import torch
import torch.nn as nn
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class ParallelMLP(nn.Module):
    def __init__(self, up: ColumnParallelLinear, down_shard):
        super().__init__()
        self.dense_h_to_4h = up
        self.weight = nn.Parameter(down_shard)  # [h, 4h/tp]
        self.weight.tensor_model_parallel = True

    def forward(self, x):
        h, _ = self.dense_h_to_4h(x)
        return torch.nn.functional.linear(torch.nn.functional.gelu(h), self.weight)  # not reduced here


class ParallelTransformerLayer(nn.Module):
    def __init__(self, hidden_size, attention: ParallelMLP, mlp: ParallelMLP):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(hidden_size)
        self.attention, self.mlp = attention, mlp

    def forward(self, x):
        residual = x
        x = self.input_layernorm(x)
        output = self.attention(x) + self.mlp(x)
        return residual + reduce_from_tensor_model_parallel_region(output)
