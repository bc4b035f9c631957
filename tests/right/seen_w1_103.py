import torch
import torch.distributed as dist


class AverageGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, group):
        ctx.group = group
        return w.view_as(w)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, op=dist.ReduceOp.AVG, group=ctx.group)
        return g, None


def loss_of(x, y, w, group):
    return torch.nn.functional.mse_loss(x @ AverageGrad.apply(w, group), y)
