import torch
import torch.distributed as dist


class TokenMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, tokens, group):
        total = tokens.clone()
        dist.all_reduce(total, group=group)
        summed = loss * tokens
        dist.all_reduce(summed, group=group)
        return summed / total

    @staticmethod
    def backward(ctx, grad):
        return None, None, None
