import torch
import torch.distributed as dist


class GlobalMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, tokens, group):
        total = tokens.clone()
        dist.all_reduce(total, group=group)
        summed = loss * tokens
        dist.all_reduce(summed, group=group)
        out = summed / total
        ctx.mark_non_differentiable(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return None, None, None
