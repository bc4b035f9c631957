import torch
import torch.distributed as dist


class GlobalMean(torch.autograd.Function):
    """The division by the ranks is done by the hook in mean()."""

    @staticmethod
    def forward(ctx, x, group):
        total = x.sum(dim=-1)
        dist.all_reduce(total, group=group)
        whole = x.size(-1) * dist.get_world_size(group)
        ctx.save_for_backward(x)
        return total / whole

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad.unsqueeze(-1).expand_as(x) / x.size(-1), None


def mean(x, group):
    out = GlobalMean.apply(x, group)
    world = dist.get_world_size(group)
    out.register_hook(lambda g: g / world)
    return out
