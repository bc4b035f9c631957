"""Linear layer with optional tensor parallelism (row-wise) and sequence parallelism."""
from typing import Optional

import torch

from transformer_engine.pytorch.distributed import gather_along_first_dim, reduce_scatter_along_first_dim


def allreduce(input_, tp_group=None):
    """All-reduce the input tensor across model parallel group."""
    # Bypass the function if we are using only 1 GPU.
    if torch.distributed.get_world_size(group=tp_group) == 1:
        return input_
    torch.distributed.all_reduce(input_, group=tp_group)
    return input_


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, weight, tp_group, tp_size, sequence_parallel, parallel_mode):
        ctx.save_for_backward(inp, weight)
        ctx.tp_group, ctx.sequence_parallel, ctx.parallel_mode = tp_group, sequence_parallel, parallel_mode
        out = torch.matmul(inp, weight.t())
        # Row Parallel Linear
        if parallel_mode == "row" and sequence_parallel:
            out, _ = reduce_scatter_along_first_dim(out, tp_group)
        elif parallel_mode == "row":  # BUG: without tensor parallelism tp_group is None, i.e. all data parallel ranks
            out = allreduce(out, tp_group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        inp, weight = ctx.saved_tensors
        if ctx.parallel_mode == "row" and ctx.sequence_parallel:
            grad_output, _ = gather_along_first_dim(grad_output.contiguous(), ctx.tp_group)
        dgrad = torch.matmul(grad_output, weight)
        wgrad = torch.matmul(grad_output.flatten(0, -2).t(), inp.flatten(0, -2))
        return dgrad, wgrad, None, None, None, None


class Linear(torch.nn.Module):
    def __init__(self, in_features, out_features, parallel_mode: Optional[str] = None, tp_size: int = 1,
                 tp_group=None, sequence_parallel: bool = False):
        super().__init__()
        self.tp_size, self.tp_group, self.parallel_mode = tp_size, tp_group, parallel_mode
        self.sequence_parallel = (tp_size > 1) and sequence_parallel
        if parallel_mode == "row":
            in_features = in_features // tp_size
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, device="cuda"))

    def forward(self, inp):
        return _Linear.apply(
            inp, self.weight, self.tp_group, self.tp_size, self.sequence_parallel, self.parallel_mode
        )
