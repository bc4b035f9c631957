"""LoRA factors for tensor-parallel linears with sequence parallelism.

Source: https://github.com/modelscope/mcore-bridge/pull/173
Wrong: the replicated factor (lora_b of a row-parallel target, lora_a of a column-parallel one) sees
this rank's part of the sequence; nobody marks it, so its gradient is never summed over TP and the
ranks train different copies.
Repair: mark it sequence_parallel like the layer norms.
"""
import torch
import torch.nn as nn
from megatron.core.extensions.transformer_engine import (
    TEColumnParallelLinear,
    TELinear,
    TERowParallelLinear,
)


class LoraParallelLinear(nn.Module):
    def __init__(self, base_layer, config, r, lora_alpha):
        super().__init__()
        self.base_layer = base_layer
        self.config = config
        self.scaling = lora_alpha / r
        self.is_row = isinstance(base_layer, TERowParallelLinear)
        self.update_layer(r)

    def _local(self, in_features, out_features):
        # duplicated on all TP ranks, no communication
        return TELinear(
            in_features, out_features, parallel_mode=None, config=self.config, init_method=self.config.init_method,
            bias=False, skip_bias_add=False, skip_weight_param_allocation=False,
        )

    def update_layer(self, r):
        kwargs = dict(config=self.config, init_method=self.config.init_method, bias=False, is_expert=False,
                      skip_bias_add=False)
        n_in, n_out = self.base_layer.in_features, self.base_layer.out_features
        if self.is_row:
            self.lora_A = TERowParallelLinear(n_in, r, input_is_parallel=True, **kwargs)  # reduce-scatters
            self.lora_B = self._local(r, n_out)
        else:
            self.lora_A = self._local(n_in, r)
            self.lora_B = TEColumnParallelLinear(r, n_out, gather_output=False, **kwargs)  # all-gathers
        local = self.lora_B if self.is_row else self.lora_A
        for p in local.parameters():
            setattr(p, "sequence_parallel", self.config.sequence_parallel)

    def forward(self, x):
        out, bias = self.base_layer(x)
        mid, _ = self.lora_A(x)
        delta, _ = self.lora_B(mid)
        return out + delta * self.scaling, bias


def finalize_lora_grads(model, tp_group):
    for p in model.parameters():
        if p.requires_grad and getattr(p, "sequence_parallel", False):
            torch.distributed.all_reduce(p.main_grad, group=tp_group)
