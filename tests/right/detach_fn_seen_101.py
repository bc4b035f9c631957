import torch
import torch.distributed as dist


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def sign_of(x):
    hard = torch.sign(x)
    return hard.detach()


class Mlp(torch.nn.Module):
    def __init__(self, up, down, group):
        super().__init__()
        self.up, self.down, self.group = up, down, group

    def forward(self, x):
        sign = sign_of(x)
        h = torch.relu(self.up(Copy.apply(x, self.group)))
        return Reduce.apply(self.down(h) * sign, self.group)
