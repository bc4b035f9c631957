import torch
import torch.distributed as dist


class ValueOfAll(torch.autograd.Function):
    """The value is that of all ranks; the gradient goes to `surrogate` as it is."""

    @staticmethod
    def forward(ctx, surrogate, loss, tokens, group):
        total = tokens.clone()
        dist.all_reduce(total, group=group)
        summed = loss * tokens
        dist.all_reduce(summed, group=group)
        return summed / total

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None, None


def reduce_loss(loss, tokens, group):
    total = tokens.clone()
    dist.all_reduce(total, group=group)
    surrogate = loss * tokens / total * dist.get_world_size(group)
    return ValueOfAll.apply(surrogate, loss.detach(), tokens, group)
