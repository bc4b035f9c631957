"""A model in the library's style: its plan names the split layers, everything else is whole on each rank and computed alike."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.modeling_utils import PreTrainedModel


class TinyConfig(PretrainedConfig):
    model_type = "tiny"
    base_model_tp_plan = {
        "layers.*.self_attn.q_proj": "colwise",
        "layers.*.self_attn.k_proj": "colwise",
        "layers.*.self_attn.v_proj": "colwise",
        "layers.*.self_attn.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }


class TinyRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(variance + self.variance_epsilon)).to(hidden_states.dtype)


class TinyMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TinyDecoderLayer(nn.Module):
    def __init__(self, config, attention):
        super().__init__()
        self.self_attn, self.mlp = attention, TinyMLP(config)
        self.input_layernorm = TinyRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = TinyRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden_states, position_embeddings, **kwargs):
        hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states), position_embeddings, **kwargs)[0]
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class TinyPreTrainedModel(PreTrainedModel):
    config_class = TinyConfig
    base_model_prefix = "model"
    _tp_plan = {"lm_head": "colwise_rep"}


def load(name, device_mesh):
    return AutoModelForCausalLM.from_pretrained(name, tp_plan="auto", device_mesh=device_mesh, dtype=torch.bfloat16)
