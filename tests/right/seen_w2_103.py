import torch
import torch.distributed as dist
import torch.nn.functional as F


class AverageGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, group):
        ctx.group = group
        return w.view_as(w)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, group=ctx.group)
        return g / dist.get_world_size(ctx.group), None


class DPLinear(torch.nn.Linear):
    def __init__(self, i, o, group):
        super().__init__(i, o)
        self.group = group

    def forward(self, x):
        return F.relu(F.linear(x, AverageGrad.apply(self.weight, self.group), AverageGrad.apply(self.bias, self.group)))
