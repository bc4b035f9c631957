"""Parallel residual block: attention and MLP share one all-reduce."""
import torch
import torch.nn as nn
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class ParallelResidualBlock(nn.Module):
    def __init__(self, hidden, attn, up_shard, down_shard):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.attn = attn
        self.up = nn.Parameter(up_shard)  # [ffn/tp, h]
        self.down = nn.Parameter(down_shard)  # [h, ffn/tp]
        self.up.tensor_model_parallel = True
        self.down.tensor_model_parallel = True

    def forward(self, x):
        # x: the same on all TP ranks
        residual = x
        h = copy_to_tensor_model_parallel_region(self.norm(x))
        h = nn.functional.gelu(nn.functional.linear(h, self.up))
        out = nn.functional.linear(h, self.down)
        out = out + residual  # BUG: the residual is added on every rank and then summed
        return reduce_from_tensor_model_parallel_region(out)
