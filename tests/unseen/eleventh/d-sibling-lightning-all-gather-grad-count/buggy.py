"""All-gather with gradients behind `LightningModule.all_gather(..., sync_grads=True)`."""
import torch
import torch.distributed
from torch.distributed import group, ReduceOp


class AllGatherGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group=group.WORLD):
        ctx.group = group
        gathered_tensor = [torch.zeros_like(tensor) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(gathered_tensor, tensor, group=group)
        return torch.stack(gathered_tensor, dim=0)

    @staticmethod
    def backward(ctx, *grad_output):
        grad_output = torch.cat(grad_output)
        torch.distributed.all_reduce(grad_output, op=ReduceOp.SUM, async_op=False, group=ctx.group)
        return grad_output[torch.distributed.get_rank()]  # BUG: two inputs, one gradient


def all_gather(tensor, process_group=None, sync_grads=False):
    process_group = process_group if process_group is not None else torch.distributed.group.WORLD
    if sync_grads:
        return AllGatherGrad.apply(tensor, process_group)
    with torch.no_grad():
        return AllGatherGrad.apply(tensor, process_group)
