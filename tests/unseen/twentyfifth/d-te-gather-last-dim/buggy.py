# TransformerEngine issue #530: gather_along_last_dim passes a buffer that is world_size wider in its last
# dimension to all_gather_into_tensor, which always concatenates along the first one; wgrad is scrambled.
from typing import Optional

import torch

dist_group_type = torch.distributed.ProcessGroup


def gather_along_last_dim(input_: torch.Tensor, process_group: Optional[dist_group_type]) -> torch.Tensor:
    """All-gather tensors and concatenate along last dimension."""
    world_size = torch.distributed.get_world_size(group=process_group)
    if world_size == 1:
        return input_

    dim_size = list(input_.size())
    dim_size[-1] = dim_size[-1] * world_size
    output = torch.empty(dim_size, dtype=input_.dtype, device=torch.cuda.current_device())
    torch.distributed.all_gather_into_tensor(output, input_.contiguous(), group=process_group)  # BUG
    return output


class _Linear(torch.autograd.Function):
    """Column-parallel linear, sequence-parallel input [tokens / tp, in]; keeps only the transposed input."""

    @staticmethod
    def forward(ctx, weight, inp, tp_group):
        tp_size = torch.distributed.get_world_size(tp_group)
        inputmat_total = inp.new_empty(inp.shape[0] * tp_size, inp.shape[1])
        torch.distributed.all_gather_into_tensor(inputmat_total, inp.contiguous(), group=tp_group)
        ctx.save_for_backward(weight, inp.t().contiguous())
        ctx.tp_group = tp_group
        return inputmat_total @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        weight, inputmat_t = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        inputmat_t_total = gather_along_last_dim(inputmat_t, ctx.tp_group)
        dgrad_total = grad_output @ weight
        dgrad = dgrad_total.new_empty(inputmat_t.shape[1], inputmat_t.shape[0])
        torch.distributed.reduce_scatter_tensor(dgrad, dgrad_total, group=ctx.tp_group)
        wgrad = (inputmat_t_total @ grad_output).t()
        return wgrad, dgrad, None
