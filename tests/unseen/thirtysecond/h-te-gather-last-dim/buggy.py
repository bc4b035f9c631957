"""Collectives of the tensor-parallel linear: gather along the last dimension.
NVIDIA/TransformerEngine #531, "Linear: fix computation for wgrad if sequence_parallel=True".
"""
import torch
import torch.distributed as dist


def get_distributed_world_size(group):
    return dist.get_world_size(group=group) if dist.is_initialized() else 1


def gather_along_first_dim(input_, tp_group):
    world_size = get_distributed_world_size(tp_group)
    if world_size == 1:
        return input_
    dim_size = list(input_.size())
    dim_size[0] = dim_size[0] * world_size
    output = torch.empty(dim_size, dtype=input_.dtype, device=input_.device)
    dist.all_gather_into_tensor(output, input_.contiguous(), group=tp_group)
    return output


def gather_along_last_dim(input_, tp_group):
    world_size = get_distributed_world_size(tp_group)
    if world_size == 1:
        return input_
    dim_size = list(input_.size())
    dim_size[-1] = dim_size[-1] * world_size
    output = torch.empty(dim_size, dtype=input_.dtype, device=input_.device)
    dist.all_gather_into_tensor(output, input_.contiguous(), group=tp_group)  # BUG
    return output


class _GatherOutput(torch.autograd.Function):
    """Column-parallel output to the full hidden dimension."""

    @staticmethod
    def forward(ctx, input_, tp_group):
        ctx.tp_group = tp_group
        return gather_along_last_dim(input_, tp_group)

    @staticmethod
    def backward(ctx, grad_output):
        world_size = get_distributed_world_size(ctx.tp_group)
        rank = dist.get_rank(group=ctx.tp_group)
        return grad_output.chunk(world_size, dim=-1)[rank].contiguous(), None
