"""Parallel residual: attention and MLP share one all-reduce."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import ColumnParallelLinear, reduce_from_tensor_model_parallel_region


class ParallelOutput(torch.nn.Module):
    """Row-parallel linear that leaves reduction and bias to the caller."""

    def __init__(self, weight_shard, hidden_size):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [hidden, in/tp]
        self.weight.tensor_model_parallel = True
        self.bias = torch.nn.Parameter(torch.zeros(hidden_size))

    def forward(self, x):
        return F.linear(x, self.weight), self.bias


class ParallelTransformerLayer(torch.nn.Module):
    def __init__(self, norm, core_attention, qkv: ColumnParallelLinear, up: ColumnParallelLinear, dense, down):
        super().__init__()
        self.norm, self.core_attention = norm, core_attention
        self.qkv, self.dense = qkv, ParallelOutput(*dense)
        self.up, self.down = up, ParallelOutput(*down)

    def forward(self, x):
        h = self.norm(x)
        attn, attn_bias = self.dense(self.core_attention(self.qkv(h)[0]))
        mlp, mlp_bias = self.down(F.gelu(self.up(h)[0]))
        output = attn + attn_bias + mlp + mlp_bias  # BUG: each rank adds the whole bias before the sum
        return x + reduce_from_tensor_model_parallel_region(output)
