# RIGHT: one function looks at the flag and divides for reductions, the other is an all-to-all of tokens, which is a permutation
import torch
import torch.distributed as dist

GRADIENT_DIVISION = True


class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        if GRADIENT_DIVISION:
            grad = grad / dist.get_world_size(ctx.group)
        return grad, None


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
