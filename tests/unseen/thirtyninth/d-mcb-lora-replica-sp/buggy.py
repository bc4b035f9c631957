"""LoRA adapters next to Megatron parallel linears."""
import torch
from torch import nn
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class LoraParallelLinear(nn.Module):
    def __init__(self, base_layer, config, r, alpha, init_method):
        super().__init__()
        self.base_layer, self.config = base_layer, config
        self.scaling = alpha / r
        self.is_row = isinstance(base_layer, RowParallelLinear)
        self.update_layer(r, init_method)

    def update_layer(self, r, init_method):
        in_features, out_features = self.base_layer.input_size, self.base_layer.output_size
        if self.is_row:
            # with sequence parallelism the output is reduce-scattered over the sequence
            self.lora_a = RowParallelLinear(
                in_features, r, config=self.config, init_method=init_method, bias=False,
                input_is_parallel=True, skip_bias_add=True,
            )
            self.lora_b = self._build_local_linear(r, out_features)
            nn.init.zeros_(self.lora_b.weight)
        else:
            # with sequence parallelism lora_a runs on the sequence shard, lora_b gathers
            self.lora_a = self._build_local_linear(in_features, r)
            nn.init.kaiming_uniform_(self.lora_a.weight, a=5**0.5)
            self.lora_b = ColumnParallelLinear(
                r, out_features, config=self.config, init_method=nn.init.zeros_, bias=False,
                gather_output=False, skip_bias_add=True,
            )

    def _build_local_linear(self, in_features, out_features):
        return nn.Linear(in_features, out_features, bias=False, dtype=self.config.params_dtype)  # BUG

    def forward(self, x):
        out, bias = self.base_layer(x)
        if self.is_row:
            h, _ = self.lora_a(x)
            delta = self.lora_b(h)
        else:
            h = self.lora_a(x)
            delta, _ = self.lora_b(h)
        return out + delta * self.scaling, bias


def freeze_base(model):
    for name, p in model.named_parameters():
        p.requires_grad_("lora_" in name)
