"""All-gather along the sequence with the group first."""
import torch
import torch.distributed as dist


class AllGatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x):
        ctx.group = group
        out = torch.empty(x.size(0) * dist.get_world_size(group), *x.shape[1:], dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        n = grad.size(0) // dist.get_world_size(ctx.group)
        out = torch.empty(n, *grad.shape[1:], dtype=grad.dtype, device=grad.device)
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None  # BUG: the first input is the group
