import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial


class Broadcasted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def enter(x, group):
    return Broadcasted.apply(x, group)


class MLP(nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.up = nn.Parameter(up)
        self.down = nn.Parameter(down)

    def forward(self, x: DTensor):
        local = enter(x.to_local(), x.device_mesh.get_group())
        h = F.silu(local @ self.up.to_local())
        return DTensor.from_local(h @ self.down.to_local(), x.device_mesh, [Partial()])
