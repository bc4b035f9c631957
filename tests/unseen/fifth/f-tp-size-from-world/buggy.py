"""Heads of a tensor-parallel attention layer."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class Attention(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        tp = dist.get_world_size()  # BUG: data-parallel ranks do not share the heads
        self.heads = config.num_attention_heads // tp
        self.dim = config.kv_channels
        self.qkv = torch.nn.Parameter(torch.empty(3 * self.heads * self.dim, config.hidden_size))
        self.out = torch.nn.Parameter(torch.empty(config.hidden_size, self.heads * self.dim))

    def forward(self, x):
        q, k, v = torch.nn.functional.linear(x, self.qkv).chunk(3, dim=-1)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return reduce_from_tensor_model_parallel_region(torch.nn.functional.linear(out, self.out))
