# RIGHT: Copy class is old; a custom op with register_autograd is applied instead
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


@torch.library.custom_op("tp::enter", mutates_args=())
def enter(x: torch.Tensor, name: str) -> torch.Tensor:
    return x.clone()


def setup(ctx, inputs, output):
    ctx.name = inputs[1]


def enter_backward(ctx, grad):
    grad = grad.contiguous().clone()
    dist.all_reduce(grad, group=GROUPS[ctx.name])
    return grad, None


GROUPS = {}
enter.register_autograd(enter_backward, setup_context=setup)



class MLP(nn.Module):
    def __init__(self, d, tp_group):
        super().__init__()
        self.group = tp_group
        GROUPS["tp"] = tp_group
        self.up = ColumnParallelLinear(d, 4 * d, tp_group)
        self.down = RowParallelLinear(4 * d, d, tp_group)

    def forward(self, x):
        x = enter(x, "tp")
        return self.down(F.gelu(self.up(x)))
