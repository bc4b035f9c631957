"""Self-attention with the heads split over the tensor-parallel ranks."""

import math

import torch
import torch.nn.functional as F
from megatron.core import parallel_state

from .config import TransformerConfig
from .layers import ColumnParallelLinear, RowParallelLinear


class SelfAttention(torch.nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.heads_per_partition = (
            config.num_attention_heads // parallel_state.get_tensor_model_parallel_world_size()
        )
        self.linear_qkv = ColumnParallelLinear(config.hidden_size, 3 * config.hidden_size, config=config)
        self.linear_proj = RowParallelLinear(config.hidden_size, config.hidden_size, config=config)

    def core_attention(self, query, key, value, attention_mask):
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(attention_mask, -10000.0)
        probs = F.softmax(scores, dim=-1)
        return torch.matmul(probs, value)

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mixed_qkv = self.linear_qkv(hidden_states)
        sequence, batch, _ = mixed_qkv.shape
        mixed_qkv = mixed_qkv.view(sequence, batch, self.heads_per_partition, 3 * self.head_dim)
        query, key, value = torch.split(mixed_qkv, self.head_dim, dim=-1)
        # [s, b, n, d] -> [b, n, s, d]
        query, key, value = query.permute(1, 2, 0, 3), key.permute(1, 2, 0, 3), value.permute(1, 2, 0, 3)
        context = self.core_attention(query, key, value, attention_mask)
        context = context.permute(2, 0, 1, 3).reshape(sequence, batch, self.heads_per_partition * self.head_dim)
        output, _ = self.linear_proj(context)
        return output
