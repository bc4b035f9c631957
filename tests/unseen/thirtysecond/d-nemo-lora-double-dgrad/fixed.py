"""Parallel LoRA adapter of a column-parallel linear.
NVIDIA/NeMo, ParallelLinearAdapter (see #8621 and #10920), from memory.
"""
import torch
import torch.nn as nn
from megatron.core.tensor_parallel import ColumnParallelLinear, gather_from_sequence_parallel_region


class ParallelLinearAdapter(nn.Module):
    def __init__(self, in_features, out_features, dim, config, alpha=32):
        super().__init__()
        self.dim, self.alpha = dim, alpha
        # the gather is done in forward(), the linears see whole sequences
        _sequence_parallel = config.sequence_parallel
        config.sequence_parallel = False
        self.linear_in = ColumnParallelLinear(
            in_features,
            dim,
            config=config,
            bias=False,
            gather_output=True,
            init_method=nn.init.xavier_uniform_,
            disable_grad_reduce=_sequence_parallel,
        )
        self.linear_out = ColumnParallelLinear(
            dim,
            out_features,
            config=config,
            bias=False,
            gather_output=False,
            init_method=nn.init.zeros_,
        )
        config.sequence_parallel = _sequence_parallel
        self._sequence_parallel = _sequence_parallel

    def forward(self, x: torch.Tensor):
        if self._sequence_parallel:
            x = gather_from_sequence_parallel_region(x)
        x, _ = self.linear_in(x)
        x, _ = self.linear_out(x)
        return x * (self.alpha / self.dim)


class LoRALinear(nn.Module):
    def __init__(self, to_wrap: ColumnParallelLinear, adapter: ParallelLinearAdapter):
        super().__init__()
        self.to_wrap, self.adapter = to_wrap, adapter

    def forward(self, x):
        linear_output, bias = self.to_wrap(x)
        return linear_output + self.adapter(x.contiguous()), bias
