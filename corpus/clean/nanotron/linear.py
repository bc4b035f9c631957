"""Column- and row-parallel linear functions on top of differentiable collectives."""

import torch
import torch.nn.functional as F
from nanotron.parallel.tensor_parallel.distributed_differentiable_primitives import (
    differentiable_all_gather,
    differentiable_all_reduce_sum,
    differentiable_identity,
    differentiable_reduce_scatter_sum,
)
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode


def column_linear(x, weight, bias, group, tp_mode):
    if tp_mode is TensorParallelLinearMode.ALL_REDUCE:
        x = differentiable_identity(x, group=group)
        return F.linear(x, weight, bias)
    if tp_mode is TensorParallelLinearMode.REDUCE_SCATTER:
        x = differentiable_all_gather(x, group=group)
        return F.linear(x, weight, bias)
    raise ValueError(f"unknown mode {tp_mode}")


def row_linear(x, weight, bias, group, tp_mode):
    out = F.linear(x, weight)
    if tp_mode is TensorParallelLinearMode.ALL_REDUCE:
        out = differentiable_all_reduce_sum(out, group=group)
    elif tp_mode is TensorParallelLinearMode.REDUCE_SCATTER:
        out = differentiable_reduce_scatter_sum(out, group=group)
    else:
        raise ValueError(f"unknown mode {tp_mode}")
    if bias is not None:
        out = out + bias
    return out


class MLP(torch.nn.Module):
    def __init__(self, up, down, pg, tp_mode):
        super().__init__()
        self.up = torch.nn.Parameter(up)
        self.down = torch.nn.Parameter(down)
        self.pg, self.tp_mode = pg, tp_mode

    def forward(self, x):
        gate, value = column_linear(x, self.up, None, self.pg, self.tp_mode).chunk(2, dim=-1)
        return row_linear(F.silu(gate) * value, self.down, None, self.pg, self.tp_mode)
