"""Column-parallel linear whose backward overlaps the all-reduce of grad_input with grad_weight."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class ColumnLinearFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, group):
        ctx.save_for_backward(x, weight)
        ctx.group = group
        ctx.use_bias = bias is not None
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        grad_x = grad_out.matmul(weight)
        handle = dist.all_reduce(grad_x, group=ctx.group, async_op=True)
        flat_g = grad_out.reshape(-1, grad_out.shape[-1])
        flat_x = x.reshape(-1, x.shape[-1])
        grad_w = flat_g.t().matmul(flat_x)
        grad_b = flat_g.sum(0) if ctx.use_bias else None
        handle.wait()
        return grad_x, grad_w, grad_b, None


class RowReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class TPMLP(nn.Module):
    def __init__(self, hidden, ffn, tp_group):
        super().__init__()
        n = dist.get_world_size(tp_group)
        self.tp_group = tp_group
        self.up = nn.Parameter(torch.empty(ffn // n, hidden))
        self.up_bias = nn.Parameter(torch.zeros(ffn // n))
        self.down = nn.Parameter(torch.empty(hidden, ffn // n))
        self.down_bias = nn.Parameter(torch.zeros(hidden))
        nn.init.normal_(self.up, std=0.02)
        nn.init.normal_(self.down, std=0.02)

    def forward(self, x):
        h = F.gelu(ColumnLinearFn.apply(x, self.up, self.up_bias, self.tp_group))
        return RowReduce.apply(F.linear(h, self.down), self.tp_group) + self.down_bias
