# modelscope/mcore-bridge, pull request 173 - https://github.com/modelscope/mcore-bridge/pull/173 (read)
# LoRA under TP + sequence parallelism: the unsharded factor (lora_B of a row-parallel target, lora_A of a
# column-parallel one) sees one sequence shard per rank; it lacks the mark that makes Megatron sum its grad.
"""LoRA layer around a Megatron tensor-parallel linear."""
import torch
import transformer_engine.pytorch as te
from megatron.core.extensions.transformer_engine import TEColumnParallelLinear, TERowParallelLinear


class LoraParallelLinear(torch.nn.Module):
    def __init__(self, base_layer, config, r, lora_alpha):
        super().__init__()
        self.base_layer, self.config, self.scaling = base_layer, config, lora_alpha / r
        self.is_row = isinstance(base_layer, TERowParallelLinear)
        self.update_layer(base_layer.in_features, base_layer.out_features, r)

    def _build_local_te_linear(self, in_features, out_features):
        return te.Linear(in_features, out_features, bias=False)  # BUG: not marked sequence parallel

    def update_layer(self, in_features, out_features, r):
        kw = dict(
            config=self.config, init_method=torch.nn.init.zeros_, bias=False,
            skip_bias_add=True, is_expert=False,
        )
        if self.is_row:
            # reduce-scatters its output along the sequence
            self.lora_A = TERowParallelLinear(in_features, r, input_is_parallel=True, **kw)
            self.lora_B = self._build_local_te_linear(r, out_features)
        else:
            self.lora_A = self._build_local_te_linear(in_features, r)
            # gathers its input along the sequence
            self.lora_B = TEColumnParallelLinear(r, out_features, gather_output=False, **kw)

    def forward(self, x):
        out, bias = self.base_layer(x)
        a = self.lora_A(x)
        a = a[0] if isinstance(a, tuple) else a
        b = self.lora_B(a)
        b = b[0] if isinstance(b, tuple) else b
        return out + b * self.scaling, bias
