"""Weight gradient of a linear from the transposed, sequence-sharded input.

Source: https://github.com/NVIDIA/TransformerEngine/issues/530
Wrong: all_gather_into_tensor joins the shards along the first dimension; with an output buffer that
is only shaped as if they were joined along the last one, rows of different ranks get mixed.
Repair: gather along the first dimension, then put the blocks side by side.
"""
import torch

from transformer_engine.pytorch.distributed import get_distributed_world_size


def gather_along_last_dim(input_, tp_group):
    """Gather tensors and concatenate along the last dimension."""
    world_size = get_distributed_world_size(tp_group)
    if world_size == 1:
        return input_, None
    dim_size = list(input_.size())
    dim_size[0] = dim_size[0] * world_size
    output = torch.empty(dim_size, dtype=input_.dtype, device=input_.device)
    torch.distributed.all_gather_into_tensor(output, input_.contiguous(), group=tp_group)
    return torch.cat(output.chunk(world_size, dim=0), dim=-1), None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp_t, weight, tp_group):
        # inp_t: [in, s / tp], the transposed input that the fp8 wgrad gemm wants
        total, _ = gather_along_last_dim(inp_t, tp_group)
        ctx.save_for_backward(inp_t, weight)
        ctx.tp_group = tp_group
        return total.t() @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        inp_t, weight = ctx.saved_tensors
        total, _ = gather_along_last_dim(inp_t, ctx.tp_group)
        wgrad = grad_output.t() @ total.t()
        dgrad = (grad_output @ weight).contiguous()
        out = dgrad.new_empty(dgrad.size(0) // get_distributed_world_size(ctx.tp_group), dgrad.size(1))
        torch.distributed.reduce_scatter_tensor(out, dgrad, group=ctx.tp_group)
        return out.t(), wgrad, None
