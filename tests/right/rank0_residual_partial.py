"""Parallel attention and MLP whose partial results are added before one sum; the residual is divided first."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ParallelBlock(nn.Module):
    """GPT-J style: x + attention(norm(x)) + mlp(norm(x)) with one all-reduce."""

    def __init__(self, hidden, heads, group):
        super().__init__()
        self.group, self.n = group, dist.get_world_size(group)
        self.heads = heads // self.n
        self.norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden // self.n)
        self.out = nn.Linear(hidden // self.n, hidden, bias=False)
        self.up = nn.Linear(hidden, 4 * hidden // self.n)
        self.down = nn.Linear(4 * hidden // self.n, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x):
        b, s, _ = x.shape
        h = Copy.apply(self.norm(x), self.group)
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, -1)
        part = self.out(a) + self.down(F.gelu(self.up(h)))
        return Reduce.apply(part, self.group) + self.bias + x


@torch.no_grad()
def decode_step(block, x, attend):
    """At inference the residual and the bias go into the sum as n equal terms."""
    h = block.norm(x)
    part = block.out(attend(block.qkv(h))) + block.down(F.gelu(block.up(h)))
    part += (x + block.bias) / block.n
    dist.all_reduce(part, group=block.group)
    return part
