"""Token dispatch with uneven splits."""
import torch
import torch.distributed as dist


class Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, send, recv, group):
        ctx.send, ctx.recv, ctx.group = send, recv, group
        out = tokens.new_empty(sum(recv), tokens.size(1))
        dist.all_to_all_single(out, tokens, recv, send, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.send), grad.size(1))
        dist.all_to_all_single(out, grad.contiguous(), ctx.send, ctx.recv, group=ctx.group)
        return out, None, None, None
