"""the entry is merged in with the operator of dicts."""
import torch.nn as nn


class ToyConfig:
    base_model_tp_plan = {
        "layers.*.self_attn.q_proj": "colwise",
        "layers.*.self_attn.o_proj": "rowwise",
    } | {"layers.*.self_attn.q_norm": "replicated_with_grad_allreduce"}


class ToyAttention(nn.Module):
    def __init__(self, config: ToyConfig):
        super().__init__()
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)
        self.q_norm = nn.RMSNorm(config.head_dim)

    def forward(self, x):
        query = self.q_norm(self.q_proj(x).view(*x.shape[:-1], -1, 128))
        return self.o_proj(attend(query))
