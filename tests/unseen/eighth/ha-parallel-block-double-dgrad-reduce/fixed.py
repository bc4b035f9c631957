"""GPT-J style block: attention and MLP read one normalised input under tensor parallelism."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ColumnLinear(nn.Module):
    def __init__(self, d_in, d_out, group, reduce_dgrad=True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out // group.size(), d_in))
        self.group, self.reduce_dgrad = group, reduce_dgrad

    def forward(self, x):
        return F.linear(CopyToTP.apply(x, self.group) if self.reduce_dgrad else x, self.weight)


class ParallelBlock(nn.Module):
    def __init__(self, dim, core_attn, row_linear, group):
        super().__init__()
        self.norm, self.core_attn, self.out, self.group = nn.LayerNorm(dim), core_attn, row_linear, group
        self.qkv = ColumnLinear(dim, 3 * dim, group, reduce_dgrad=False)
        self.fc_in = ColumnLinear(dim, 4 * dim, group, reduce_dgrad=False)

    def forward(self, x):
        h = CopyToTP.apply(self.norm(x), self.group)
        inner = torch.cat([self.core_attn(self.qkv(h)), F.gelu(self.fc_in(h))], dim=-1)
        return x + self.out(inner)  # row-parallel, all-reduced in forward
