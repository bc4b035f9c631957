import torch
import torch.distributed as dist
import torch.nn.functional as F


class AverageGrad(torch.autograd.Function):
    """Identity on the activations; used once on the inputs of experts' weights."""
    @staticmethod
    def forward(ctx, w, group):
        ctx.group = group
        return w

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, op=dist.ReduceOp.AVG, group=ctx.group)
        return g, None


def forward(params, x, group):
    params = [AverageGrad.apply(p, group) for p in params]
    w, b = params
    return F.softmax(x @ w + b, -1)
