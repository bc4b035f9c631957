import torch
import torch.distributed as dist


class TokenMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, tokens, group):
        total = tokens.clone()
        dist.all_reduce(total, group=group)
        summed = loss * tokens
        dist.all_reduce(summed, group=group)
        ctx.size = dist.get_world_size(group)
        ctx.tokens, ctx.total = tokens, total
        return summed / total

    @staticmethod
    def backward(ctx, grad):
        return TokenMean.weigh(ctx, grad), None, None

    @staticmethod
    def weigh(ctx, grad):
        return grad * ctx.size * ctx.tokens / ctx.total
