"""Differentiable all-gather on a subgroup (torch.distributed.nn.functional)."""
import torch
import torch.distributed as dist
from torch.autograd import Function


class _AllGather(Function):
    @staticmethod
    def forward(ctx, group, tensor):
        tensor = tensor.contiguous()
        ctx.group = group
        out_tensor_list = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group=group))]
        dist.all_gather(out_tensor_list, tensor, group=group)
        return tuple(out_tensor_list)

    @staticmethod
    def backward(ctx, *grad_outputs):
        grads = torch.stack(grad_outputs)
        dist.all_reduce(grads, op=dist.ReduceOp.SUM, group=ctx.group)
        return None, grads[dist.get_rank() % len(grad_outputs)]  # BUG: position in the group meant


def all_gather(tensor, group):
    return _AllGather.apply(group, tensor)


def pipeline_data_groups(num_stages):
    """Ranks of one stage are num_stages apart."""
    world = dist.get_world_size()
    mine = None
    for stage in range(num_stages):
        ranks = list(range(stage, world, num_stages))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    return mine
