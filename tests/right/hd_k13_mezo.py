# RIGHT: zeroth-order training (MeZO): no backward at all
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
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


class ColumnParallelLinear(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out // dist.get_world_size(tp_group), n_in))

    def forward(self, x):
        return F.linear(x, self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out, n_in // dist.get_world_size(tp_group)))

    def forward(self, x):
        return Reduce.apply(F.linear(x, self.weight), self.group)


@torch.no_grad()
def mezo_step(model, loss_fn, batch, lr, eps, seed):
    def perturb(scale):
        torch.manual_seed(seed)
        for p in model.parameters():
            p.add_(torch.randn_like(p) * scale)

    perturb(eps)
    up = loss_fn(model, batch)
    perturb(-2 * eps)
    down = loss_fn(model, batch)
    perturb(eps)
    g = (up - down) / (2 * eps)
    perturb(-lr * g)
