"""Shardformer's one-dimensional linear layers in three sequence-parallel modes, with the functions of the framework."""

from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F
from colossalai.shardformer.layer._operation import (
    gather_forward_reducescatter_backward,
    gather_forward_split_backward,
    reduce_backward,
    reduce_forward,
    reducescatter_forward_gather_backward,
    split_forward_gather_backward,
)
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.parameter import Parameter


class Linear1D_Col(nn.Module):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        process_group: Optional[ProcessGroup] = None,
        gather_output: bool = False,
        seq_parallel_mode: Optional[str] = None,
        seq_parallel_dim: int = 1,
        skip_bias_add: bool = False,
    ):
        super().__init__()
        self.gather_output = gather_output
        self.seq_parallel_mode = seq_parallel_mode
        self.seq_parallel_dim = seq_parallel_dim
        self.skip_bias_add = skip_bias_add
        self.process_group = process_group
        if skip_bias_add and not bias:
            raise ValueError("cannot skip bias addition if bias is None")
        out_per_rank = out_features // dist.get_world_size(process_group)
        self.weight = Parameter(torch.empty(out_per_rank, in_features))
        self.bias = Parameter(torch.empty(out_per_rank)) if bias else None

    def forward(self, input_: Tensor):
        bias = self.bias if not self.skip_bias_add else None
        if self.seq_parallel_mode == "split_gather":
            input_parallel = gather_forward_reducescatter_backward(input_, self.process_group, self.seq_parallel_dim)
        else:
            input_parallel = reduce_backward(input_, self.process_group)
        output_parallel = F.linear(input_parallel, self.weight, bias)
        if self.gather_output:
            output = gather_forward_split_backward(output_parallel, dim=-1, process_group=self.process_group)
        else:
            output = output_parallel
        if self.skip_bias_add:
            return output, self.bias
        return output


class Linear1D_Row(nn.Module):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        process_group: Optional[ProcessGroup] = None,
        seq_parallel_mode: Optional[str] = None,
        seq_parallel_dim: int = 1,
        parallel_input: bool = True,
        skip_bias_add: bool = False,
    ):
        super().__init__()
        if seq_parallel_mode == "split_gather" and not parallel_input:
            raise ValueError("sequence parallelism needs a parallel input")
        self.parallel_input = parallel_input
        self.seq_parallel_mode = seq_parallel_mode
        self.seq_parallel_dim = seq_parallel_dim
        self.skip_bias_add = skip_bias_add
        self.process_group = process_group
        self.weight = Parameter(torch.empty(out_features, in_features // dist.get_world_size(process_group)))
        self.bias = Parameter(torch.empty(out_features)) if bias else None
        if self.bias is not None and seq_parallel_mode == "split_gather":
            # Its gradient is partial: SeqParallelUtils sums it over the group after the backward pass.
            setattr(self.bias, "partial_derived", True)

    def forward(self, input_: Tensor):
        if not self.parallel_input:
            input_ = split_forward_gather_backward(input_, dim=-1, process_group=self.process_group)
        output_parallel = F.linear(input_, self.weight)
        if self.seq_parallel_mode == "split_gather":
            output = reducescatter_forward_gather_backward(output_parallel, self.process_group, self.seq_parallel_dim)
        else:
            output = reduce_forward(output_parallel, self.process_group)
        if self.skip_bias_add:
            return output, self.bias
        if self.bias is not None:
            output = output + self.bias
        return output


class MLP(nn.Module):
    def __init__(self, hidden, inner, process_group, seq_parallel_mode=None):
        super().__init__()
        self.gate_proj = Linear1D_Col(hidden, inner, False, process_group, seq_parallel_mode=seq_parallel_mode)
        self.up_proj = Linear1D_Col(hidden, inner, False, process_group, seq_parallel_mode=seq_parallel_mode)
        self.down_proj = Linear1D_Row(inner, hidden, True, process_group, seq_parallel_mode=seq_parallel_mode)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def allreduce_partial_gradients(model, process_group):
    grads = [p.grad for p in model.parameters() if p.grad is not None and getattr(p, "partial_derived", False)]
    if grads:
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat, op=dist.ReduceOp.SUM, group=process_group)
        for grad, part in zip(grads, flat.split([g.numel() for g in grads])):
            grad.copy_(part.view_as(grad))
