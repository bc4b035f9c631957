"""Adapters with the framework's layers: after a column-parallel base the second factor is split, after a row-parallel base the first one."""

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class ParallelAdapter(torch.nn.Module):
    def __init__(self, config, in_features, out_features, dim, alpha, input_is_parallel):
        super().__init__()
        self.scale = alpha / dim
        self.input_is_parallel = input_is_parallel
        init = torch.nn.init.xavier_normal_
        if input_is_parallel:
            self.linear_in = RowParallelLinear(
                in_features, dim, config=config, init_method=init, bias=False, input_is_parallel=True, skip_bias_add=True
            )
            # Whole on all ranks; with sequence parallelism it sees a part of the sequence.
            self.linear_out = torch.nn.Linear(dim, out_features, bias=False)
            self.linear_out.weight.sequence_parallel = config.sequence_parallel
            torch.nn.init.zeros_(self.linear_out.weight)
        else:
            self.linear_in = torch.nn.Linear(in_features, dim, bias=False)
            self.linear_in.weight.sequence_parallel = config.sequence_parallel
            self.linear_out = ColumnParallelLinear(
                dim, out_features, config=config, init_method=torch.nn.init.zeros_, bias=False, gather_output=False
            )

    def forward(self, x):
        x = self.linear_in(x)
        if self.input_is_parallel:
            x = x[0]
        x = self.linear_out(x)
        if not self.input_is_parallel:
            x = x[0]
        return x * self.scale


class LoRALinear(torch.nn.Module):
    def __init__(self, base, adapter):
        super().__init__()
        self.base, self.adapter = base, adapter
        for param in self.base.parameters():
            param.requires_grad_(False)

    def forward(self, x, *args, **kwargs):
        out, bias = self.base(x, *args, **kwargs)
        return out + self.adapter(x), bias
