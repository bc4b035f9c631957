"""OLMoE attention: one RMS norm over all query (key) heads.

modelscope/mcore-bridge, pull request #101 (mcore_bridge/model/gpts/olmoe.py).
"""
import torch
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    gather_from_tensor_model_parallel_region,
    scatter_to_tensor_model_parallel_region,
)


class OlmoeSelfAttention(torch.nn.Module):
    def __init__(self, config, linear_qkv: ColumnParallelLinear, core_attention, linear_proj):
        super().__init__()
        self.config = config
        self.linear_qkv, self.linear_proj = linear_qkv, linear_proj
        self.core_attention = core_attention
        self.q_norm = torch.nn.RMSNorm(config.hidden_size, eps=config.layernorm_epsilon)
        self.k_norm = torch.nn.RMSNorm(config.hidden_size, eps=config.layernorm_epsilon)
        for norm in (self.q_norm, self.k_norm):
            for p in norm.parameters():
                setattr(p, "sequence_parallel", config.sequence_parallel)  # BUG: gradient is complete on each rank

    def _full_norm(self, norm, x):
        x = gather_from_tensor_model_parallel_region(x)  # all heads on every rank
        x = norm(x)
        return scatter_to_tensor_model_parallel_region(x)

    def forward(self, hidden_states, attention_mask, rotary):
        mixed, _ = self.linear_qkv(hidden_states)  # [s, b, 3 * h / tp]
        query, key, value = mixed.chunk(3, dim=-1)
        query = self._full_norm(self.q_norm, query)
        key = self._full_norm(self.k_norm, key)
        shape = (*query.shape[:2], -1, self.config.kv_channels)
        query, key, value = (t.reshape(shape) for t in (query, key, value))
        out = self.core_attention(rotary(query), rotary(key), value, attention_mask)
        return self.linear_proj(out.flatten(-2))
