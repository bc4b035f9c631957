"""A transformer layer from module specs, with selective recomputation through tensor_parallel.checkpoint."""

from dataclasses import dataclass
from typing import Optional, Union

import torch
from megatron.core import tensor_parallel
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.utils import make_viewless_tensor


@dataclass
class MLPSubmodules:
    linear_fc1: Union[ModuleSpec, type] = None
    linear_fc2: Union[ModuleSpec, type] = None


@dataclass
class LayerSubmodules:
    input_layernorm: Union[ModuleSpec, type] = IdentityOp
    self_attention: Union[ModuleSpec, type] = IdentityOp
    pre_mlp_layernorm: Union[ModuleSpec, type] = IdentityOp
    mlp: Union[ModuleSpec, type] = IdentityOp


class MLP(MegatronModule):
    def __init__(self, config: TransformerConfig, submodules: MLPSubmodules, is_expert: bool = False):
        super().__init__(config=config)
        ffn = config.ffn_hidden_size * (2 if config.gated_linear_unit else 1)
        self.linear_fc1 = build_module(
            submodules.linear_fc1, config.hidden_size, ffn, config=config, init_method=config.init_method,
            gather_output=False, bias=config.add_bias_linear, skip_bias_add=True, is_expert=is_expert,
        )
        self.activation_func = config.activation_func
        self.linear_fc2 = build_module(
            submodules.linear_fc2, config.ffn_hidden_size, config.hidden_size, config=config,
            init_method=config.output_layer_init_method, bias=config.add_bias_linear, input_is_parallel=True,
            skip_bias_add=True, is_expert=is_expert,
        )

    def forward(self, hidden_states):
        intermediate, bias = self.linear_fc1(hidden_states)
        if bias is not None:
            intermediate = intermediate + bias
        if self.config.gated_linear_unit:
            gate, value = torch.chunk(intermediate, 2, dim=-1)
            intermediate = self.activation_func(gate) * value
        else:
            intermediate = self.activation_func(intermediate)
        return self.linear_fc2(intermediate)


class TransformerLayer(MegatronModule):
    def __init__(self, config: TransformerConfig, submodules: LayerSubmodules, layer_number: int = 1):
        super().__init__(config=config)
        self.layer_number = layer_number
        self.input_layernorm = build_module(submodules.input_layernorm, config=config, hidden_size=config.hidden_size)
        self.self_attention = build_module(submodules.self_attention, config=config, layer_number=layer_number)
        self.pre_mlp_layernorm = build_module(submodules.pre_mlp_layernorm, config=config, hidden_size=config.hidden_size)
        self.mlp = build_module(submodules.mlp, config=config)
        self.recompute_mlp = config.recompute_granularity == "selective" and "mlp" in config.recompute_modules

    def forward(self, hidden_states, attention_mask, rotary_pos_emb: Optional[torch.Tensor] = None):
        residual = hidden_states
        output, bias = self.self_attention(self.input_layernorm(hidden_states), attention_mask, rotary_pos_emb=rotary_pos_emb)
        hidden_states = residual + torch.nn.functional.dropout(
            output if bias is None else output + bias, p=self.config.hidden_dropout, training=self.training
        )
        residual = hidden_states
        normed = self.pre_mlp_layernorm(hidden_states)
        if self.recompute_mlp:
            output, bias = tensor_parallel.checkpoint(self.mlp, False, normed)
        else:
            output, bias = self.mlp(normed)
        output = residual + (output if bias is None else output + bias)
        return make_viewless_tensor(inp=output, requires_grad=output.requires_grad, keep_graph=True)


def get_layer_spec(attention, norm):
    mlp = ModuleSpec(module=MLP, submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear))
    return ModuleSpec(
        module=TransformerLayer,
        submodules=LayerSubmodules(input_layernorm=norm, self_attention=attention, pre_mlp_layernorm=norm, mlp=mlp),
    )
