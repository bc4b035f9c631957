# NVIDIA/TransformerEngine, pull request 1528 - https://github.com/NVIDIA/TransformerEngine/pull/1528 (read)
# After the norm modules were rebuilt on te.ops, sequence_parallel stayed an attribute of the module; the
# parameters lost it, and Megatron-Core reduces only parameters that carry it.
"""LayerNorm module with an option for Megatron-style sequence parallelism, and its use."""
import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from transformer_engine.pytorch.ops import LayerNorm as _LayerNormOp


class LayerNorm(_LayerNormOp):
    def __init__(self, normalized_shape, eps=1e-5, sequence_parallel=None, params_dtype=None, **kwargs):
        super().__init__(normalized_shape, eps=eps, dtype=params_dtype, **kwargs)
        self.sequence_parallel = sequence_parallel
        if sequence_parallel is not None:
            self.weight.sequence_parallel = sequence_parallel
            self.bias.sequence_parallel = sequence_parallel


class MLPBlock(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        h, f = config.hidden_size, config.ffn_hidden_size
        kw = dict(config=config, init_method=config.init_method, bias=False)
        self.norm = LayerNorm(h, sequence_parallel=config.sequence_parallel)
        self.fc1 = ColumnParallelLinear(h, f, gather_output=False, **kw)
        self.fc2 = RowParallelLinear(f, h, input_is_parallel=True, skip_bias_add=True, **kw)

    def forward(self, x):
        # x: this TP rank's part of the sequence
        h, _ = self.fc1(self.norm(x))
        out, _ = self.fc2(torch.nn.functional.gelu(h))
        return x + out
