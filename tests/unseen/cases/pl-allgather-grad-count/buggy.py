"""Gather tensors of all processes, keeping the gradient."""
import torch


class AllGatherGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group=torch.distributed.group.WORLD):
        ctx.group = group
        gathered_tensor = [torch.zeros_like(tensor) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(gathered_tensor, tensor, group=group)
        return torch.stack(gathered_tensor, dim=0)

    @staticmethod
    def backward(ctx, *grad_output):
        grad_output = torch.cat(grad_output)
        torch.distributed.all_reduce(
            grad_output, op=torch.distributed.ReduceOp.SUM, async_op=False, group=ctx.group
        )
        return grad_output[torch.distributed.get_rank()]  # BUG: two inputs, one gradient


def all_gather(module_output, group=torch.distributed.group.WORLD):
    return AllGatherGrad.apply(module_output, group)
