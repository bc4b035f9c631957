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


class Mlp(torch.nn.Module):
    def __init__(self, up, down, group):
        super().__init__()
        self.up, self.down, self.group = up, down, group

    def length_scale(self, x):
        return x.size(-1) ** -0.5

    def forward(self, x):
        scale = self.length_scale(x)
        x = Copy.apply(x, self.group)
        return Reduce.apply(self.down(torch.relu(self.up(x))) * scale, self.group)
