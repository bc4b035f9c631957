"""LoRA adapters for Megatron linears."""
# thread: NVIDIA-NeMo/Megatron-Bridge#5900
import copy
from dataclasses import dataclass

import torch.nn as nn
from megatron.core.extensions.transformer_engine import (
    TEColumnParallelLinear,
    TELayerNormColumnParallelLinear,
    TELinear,
    TERowParallelLinear,
)
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


@dataclass
class AdapterAttributes:
    in_features: int
    out_features: int
    input_is_parallel: bool
    replicated: bool


def get_adapter_attributes_from_linear(m) -> AdapterAttributes:
    tp_size = m.config.tensor_model_parallel_size
    if isinstance(m, (TEColumnParallelLinear, TELayerNormColumnParallelLinear)):
        return AdapterAttributes(m.in_features, m.out_features * tp_size, False, False)
    if isinstance(m, TERowParallelLinear):
        return AdapterAttributes(m.in_features * tp_size, m.out_features, True, False)
    if isinstance(m, TELinear):
        # parallel_mode "duplicated": full weight, applied to the rank-local tokens
        return AdapterAttributes(m.in_features, m.out_features, False, True)
    raise NotImplementedError(type(m))


class ParallelLinearAdapter(nn.Module):
    def __init__(self, attrs: AdapterAttributes, dim, config, init_method, alpha):
        super().__init__()
        self.scale, self.attrs = alpha / dim, attrs
        self.sequence_parallel = config.sequence_parallel
        n_in, n_out = attrs.in_features, attrs.out_features
        if attrs.replicated:
            # marks its parameters sequence_parallel, their gradients are summed over TP
            dup = dict(parallel_mode="duplicated", config=config, init_method=init_method, bias=False,
                       skip_bias_add=True, skip_weight_param_allocation=False)
            self.linear_in, self.linear_out = TELinear(n_in, dim, **dup), TELinear(dim, n_out, **dup)
            return
        sp = config.sequence_parallel
        config = copy.copy(config)
        config.sequence_parallel = False
        common = dict(config=config, bias=False, init_method=init_method)
        if attrs.input_is_parallel:
            self.linear_in = RowParallelLinear(n_in, dim, input_is_parallel=True, skip_bias_add=True, **common)
        else:
            self.linear_in = ColumnParallelLinear(n_in, dim, gather_output=True, disable_grad_reduce=sp, **common)
        self.linear_out = ColumnParallelLinear(dim, n_out, gather_output=attrs.input_is_parallel, **common)

    def forward(self, x):
        comm = self.sequence_parallel and not self.attrs.replicated
        if comm and not self.attrs.input_is_parallel:
            x = gather_from_sequence_parallel_region(x)
        x, _ = self.linear_in(x)
        x, _ = self.linear_out(x)
        if comm and self.attrs.input_is_parallel:
            x = scatter_to_sequence_parallel_region(x)
        return x * self.scale


class LoRALinear(nn.Module):
    def __init__(self, to_wrap, dim, alpha, init_method):
        super().__init__()
        self.to_wrap = to_wrap
        attrs = get_adapter_attributes_from_linear(to_wrap)
        self.adapter = ParallelLinearAdapter(attrs, dim, to_wrap.config, init_method, alpha)

    def forward(self, x):
        out, bias = self.to_wrap(x)
        return out + self.adapter(x), bias
