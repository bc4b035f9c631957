# Source: NVIDIA/TransformerEngine commit d76118d90 (PR #531), transformer_engine/pytorch/distributed.py
# gather_along_last_dim allocates an output that is larger in the last dimension and hands it to
# all_gather_into_tensor, which concatenates along the first one: the elements are scrambled and
# the weight gradient with sequence parallelism is wrong.
# Repair: save and gather the input that is not transposed, along the first dimension.
import torch

from transformer_engine.pytorch.distributed import (
    get_distributed_world_size,
    reduce_scatter_along_first_dim,
)


def gather_along_first_dim(input_, tp_group, async_op=False):
    """Gather tensors and concatinate along the first dimension."""
    dim_size = list(input_.size())
    dim_size[0] = dim_size[0] * get_distributed_world_size(tp_group)
    output = torch.empty(dim_size, dtype=input_.dtype, device=torch.cuda.current_device())
    handle = torch.distributed.all_gather_into_tensor(
        output, input_.contiguous(), group=tp_group, async_op=async_op
    )
    return output, handle


def gather_along_last_dim(input_, tp_group, async_op=False):
    """Gather tensors and concatinate along the last dimension."""
    dim_size = list(input_.size())
    dim_size[-1] = dim_size[-1] * get_distributed_world_size(tp_group)
    output = torch.empty(dim_size, dtype=input_.dtype, device=torch.cuda.current_device())
    handle = torch.distributed.all_gather_into_tensor(  # BUG
        output, input_.contiguous(), group=tp_group, async_op=async_op
    )
    return output, handle


class _Linear(torch.autograd.Function):
    """Column-parallel linear with sequence parallelism."""

    @staticmethod
    def forward(ctx, weight, inp, tp_group):
        # inp: [tokens / tp, in], weight: [out / tp, in]
        inputmat_total, _ = gather_along_first_dim(inp, tp_group)
        ctx.save_for_backward(inp.t().contiguous(), weight)
        ctx.tp_group = tp_group
        return inputmat_total @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        inputmat_t, weight = ctx.saved_tensors
        inputmat_t_total, handle = gather_along_last_dim(inputmat_t, ctx.tp_group, async_op=True)
        dgrad = grad_output @ weight
        handle.wait()
        dgrad, handle = reduce_scatter_along_first_dim(dgrad, ctx.tp_group, async_op=True)
        wgrad = (inputmat_t_total @ grad_output).t()
        handle.wait()
        return wgrad, dgrad, None
