# RIGHT: GRADIENT_DIVISION is looked at where gradients are reduced, the all-to-all is its own adjoint
import torch
import torch.distributed as dist

GRADIENT_DIVISION = True


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous(), group=ctx.group)
        return out, None


def reduce(params, group):
    for p in params:
        dist.all_reduce(p.grad, group=group)
        if GRADIENT_DIVISION:
            p.grad.div_(dist.get_world_size(group))
