"""A plan for heads on each rank: the norm of the query sums its gradient, and the other one is over whole features."""

import torch.nn as nn
import torch.nn.functional as F


class HeadsConfig:
    base_model_tp_plan = {
        "layers.*.self_attn.q_proj": "colwise",
        "layers.*.self_attn.k_proj": "colwise_gather_output",
        "layers.*.self_attn.q_norm": "replicated_with_grad_allreduce",
        "layers.*.self_attn.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }


class HeadsAttention(nn.Module):
    def __init__(self, config: HeadsConfig):
        super().__init__()
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.q_norm = nn.RMSNorm(config.head_dim)
        self.k_norm = nn.RMSNorm(config.hidden_size)

    def forward(self, x):
        query = self.q_norm(self.q_proj(x).view(*x.shape[:-1], -1, 128))
        key = self.k_norm(self.k_proj(x))
        return self.o_proj(attend(query, key))


class HeadsMLP(nn.Module):
    def __init__(self, config: HeadsConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
