import torch
import torch.distributed as dist


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        n, r = dist.get_world_size(group), dist.get_rank(group)
        # x: [s/tp, b, h] of the whole
        return x.chunk(n)[r].contiguous()

    @staticmethod
    def backward(ctx, g):
        out = [torch.empty_like(g) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(out, g, group=ctx.group)
        return torch.cat(out), None


def scatter(x, tp_group):
    # gives [s/tp, b, h] of x
    return Scatter.apply(x, tp_group)


def block(x, tp_group, layer):
    # x comes whole and is cut to [s/tp, b, h]
    x = Scatter.apply(x, tp_group)
    return layer(x)
