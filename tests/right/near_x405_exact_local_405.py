import torch
import torch.distributed as dist


class TokenMean(torch.autograd.Function):
    """`loss` was computed on a detached leaf; the caller multiplies leaf.grad by the weight."""

    @staticmethod
    def forward(ctx, loss, tokens, group):
        total = tokens.clone()
        dist.all_reduce(total, group=group)
        summed = loss * tokens
        dist.all_reduce(summed, group=group)
        return summed / total

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None


def head_backward(hidden, head, tokens, group):
    leaf = hidden.detach().requires_grad_()
    loss = TokenMean.apply(head(leaf), tokens, group)
    loss.backward()
    total = tokens.clone()
    dist.all_reduce(total, group=group)
    w = tokens / total * dist.get_world_size(group)
    for p in head.parameters():
        p.grad.mul_(w)
    hidden.backward(leaf.grad * w)
    return loss.detach()
