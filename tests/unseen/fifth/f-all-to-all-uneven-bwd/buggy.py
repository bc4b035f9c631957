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
        out = grad.new_empty(sum(ctx.recv), grad.size(1))  # BUG: what comes back has the sizes that were sent
        dist.all_to_all_single(out, grad.contiguous(), ctx.recv, ctx.send, group=ctx.group)
        return out, None, None, None
