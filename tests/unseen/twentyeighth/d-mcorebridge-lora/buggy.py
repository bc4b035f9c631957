"""LoRA wrappers around Megatron tensor-parallel linears."""
import math

import torch
import torch.nn as nn
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


def _init_lora_a(weight):
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))


def _build_local_linear(in_features, out_features, config):
    return nn.Linear(
        in_features,
        out_features,
        bias=False,
        dtype=config.params_dtype,
        device=torch.cuda.current_device(),
    )


class LoraRowParallelLinear(nn.Module):
    """Adapter for ``linear_proj`` / ``linear_fc2``.

    The base layer takes an input split over the tensor-parallel ranks and, when
    ``config.sequence_parallel`` is on, scatters its output along the sequence.
    """

    def __init__(self, base_layer, config, tp_group, r=8, lora_alpha=16, lora_dropout=0.0):
        super().__init__()
        self.base_layer = base_layer
        self.config = config
        self.scaling = lora_alpha / r
        self.dropout = nn.Dropout(lora_dropout) if lora_dropout > 0 else nn.Identity()
        for p in base_layer.parameters():
            p.requires_grad_(False)
        self.lora_a = RowParallelLinear(
            input_size=base_layer.input_size,
            output_size=r,
            config=config,
            init_method=_init_lora_a,
            bias=False,
            input_is_parallel=True,
            skip_bias_add=True,
            tp_group=tp_group,
        )
        self.lora_b = _build_local_linear(r, base_layer.output_size, config)  # BUG
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        result, bias = self.base_layer(x)
        hidden, _ = self.lora_a(self.dropout(x))
        return result + self.lora_b(hidden) * self.scaling, bias


class LoraColumnParallelLinear(nn.Module):
    """Adapter for ``linear_qkv`` / ``linear_fc1``."""

    def __init__(self, base_layer, config, tp_group, r=8, lora_alpha=16, lora_dropout=0.0):
        super().__init__()
        self.base_layer = base_layer
        self.scaling = lora_alpha / r
        self.dropout = nn.Dropout(lora_dropout) if lora_dropout > 0 else nn.Identity()
        for p in base_layer.parameters():
            p.requires_grad_(False)
        self.lora_a = _build_local_linear(base_layer.input_size, r, config)
        self.lora_a.weight.sequence_parallel = config.sequence_parallel
        self.lora_b = ColumnParallelLinear(
            input_size=r,
            output_size=base_layer.output_size,
            config=config,
            init_method=nn.init.zeros_,
            bias=False,
            gather_output=False,
            skip_bias_add=True,
            tp_group=tp_group,
        )
        _init_lora_a(self.lora_a.weight)

    def forward(self, x):
        result, bias = self.base_layer(x)
        update, _ = self.lora_b(self.lora_a(self.dropout(x)))
        return result + update * self.scaling, bias


def inject_adapters(model, config, tp_group, targets, **lora_kwargs):
    for name, module in list(model.named_modules()):
        leaf = name.rsplit(".", 1)[-1]
        if leaf not in targets:
            continue
        parent = model.get_submodule(name.rsplit(".", 1)[0])
        if leaf in ("linear_proj", "linear_fc2"):
            wrapped = LoraRowParallelLinear(module, config, tp_group, **lora_kwargs)
        else:
            wrapped = LoraColumnParallelLinear(module, config, tp_group, **lora_kwargs)
        setattr(parent, leaf, wrapped)
    return model
