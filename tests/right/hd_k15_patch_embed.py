# RIGHT: the column layer stands only on image patches (no gradient before it), all others use the function that sums grad_x itself
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


class LinearAsync(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, group):
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        gx = grad @ weight
        work = dist.all_reduce(gx, group=ctx.group, async_op=True)
        gw = grad.flatten(0, -2).t() @ x.flatten(0, -2)
        work.wait()
        return gx, gw, None


class PatchEmbed(nn.Module):
    def __init__(self, patch, d, tp_group):
        super().__init__()
        self.patch = patch
        self.proj = ColumnParallelLinear(3 * patch * patch, 4 * d, tp_group)
        self.out = RowParallelLinear(4 * d, d, tp_group)

    def forward(self, images):
        patches = F.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        return self.out(F.gelu(self.proj(patches)))


class Up(nn.Module):
    def __init__(self, d, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(4 * d // dist.get_world_size(tp_group), d))

    def forward(self, x):
        return LinearAsync.apply(x, self.weight, self.group)
