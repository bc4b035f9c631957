import torch
import torch.distributed as dist


class ScaleGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.s = s
        return x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.s, None


class AvgGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, g):
        g = g / dist.get_world_size(ctx.group)
        dist.all_reduce(g, group=ctx.group)
        return g, None


class TiedHead(torch.nn.Module):
    def __init__(self, w, group):
        super().__init__()
        self.w, self.group = torch.nn.Parameter(w), group

    def forward(self, h):
        return (h @ AvgGrad.apply(self.w, self.group).t()).log_softmax(-1)


class Gate(torch.nn.Module):
    def __init__(self, w, group):
        super().__init__()
        self.w, self.group = torch.nn.Parameter(w), group

    def forward(self, h):
        return torch.sigmoid(h @ ScaleGrad.apply(self.w, 1 / dist.get_world_size(self.group)))
