"""LoRA around a column-parallel projection (megatron adapter style)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_tensor_model_parallel_region,
)


def divide(n, d):
    assert n % d == 0
    return n // d


class ColumnParallelLoRA(nn.Module):
    """base: a frozen ColumnParallelLinear; the adapter has a whole A and the shard of B that goes with the base."""

    def __init__(self, base, in_features, out_features, config):
        super().__init__()
        self.base = base
        self.rank = config.lora_rank
        self.scaling = config.lora_alpha / config.lora_rank
        self.dropout = nn.Dropout(config.lora_dropout)
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.lora_a = nn.Parameter(torch.empty(self.rank, in_features))
        self.lora_b = nn.Parameter(torch.zeros(divide(out_features, tp), self.rank))
        setattr(self.lora_b, "tensor_model_parallel", True)
        setattr(self.lora_b, "partition_dim", 0)
        nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)
        for p in self.base.parameters():
            p.requires_grad_(False)

    def forward(self, hidden):
        out, bias = self.base(hidden)
        x = self.dropout(hidden)
        mid = F.linear(x, self.lora_a)
        mid = copy_to_tensor_model_parallel_region(mid)
        delta = F.linear(mid, self.lora_b)
        return out + self.scaling * delta, bias


def add_adapters(model, config):
    for layer in model.decoder.layers:
        attn = layer.self_attention
        attn.linear_qkv = ColumnParallelLoRA(attn.linear_qkv, config.hidden_size, 3 * config.hidden_size, config)
    return model
