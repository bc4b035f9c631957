import torch
import torch.distributed as dist


class Mean(torch.autograd.Function):
    """Mean over ranks that all go on with it alike: each gets its share of the gradient."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.n = dist.get_world_size(group)
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x / ctx.n

    @staticmethod
    def backward(ctx, g):
        return g / ctx.n, None


class MeanAvg(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        x = x.clone()
        dist.all_reduce(x, op=dist.ReduceOp.AVG, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, op=dist.ReduceOp.AVG, group=ctx.group)
        return g, None


class AverageGrad(torch.autograd.Function):
    """A parameter of data-parallel ranks: what comes back is averaged."""

    @staticmethod
    def forward(ctx, w, group):
        ctx.group = group
        return w.view_as(w)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, op=dist.ReduceOp.AVG, group=ctx.group)
        return g, None


class DPLinear(torch.nn.Linear):
    def __init__(self, i, o, group):
        super().__init__(i, o)
        self.group = group

    def forward(self, x):
        w, b = AverageGrad.apply(self.weight, self.group), AverageGrad.apply(self.bias, self.group)
        return torch.nn.functional.linear(x, w, b)


def train(i, o, loader, group):
    net = DPLinear(i, o, group)
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        opt.step()
