"""A transformer block with every type written down, in both configurations of sequence parallelism, on mapping functions with contracts."""

# spmd: mesh dense = dp, tp
# spmd: group tp_group() = tp
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

_TP = None


def tp_group():
    return _TP


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty(x.size(0) * group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty(grad.size(0) // ctx.group.size(), *grad.shape[1:], dtype=grad.dtype, device=grad.device)
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty(x.size(0) // group.size(), *x.shape[1:], dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty(grad.size(0) * ctx.group.size(), *grad.shape[1:], dtype=grad.dtype, device=grad.device)
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


# spmd: x: {tp: S(0) if sequence_parallel else I} -> {tp: R}
def enter(x, sequence_parallel):
    return Gather.apply(x, tp_group()) if sequence_parallel else Copy.apply(x, tp_group())


# spmd: x: {tp: P} -> {tp: S(0) if sequence_parallel else I}
def leave(x, sequence_parallel):
    return ReduceScatter.apply(x, tp_group()) if sequence_parallel else Reduce.apply(x, tp_group())


class Attention(nn.Module):
    def __init__(self, hidden, heads, sequence_parallel):
        super().__init__()
        self.heads, self.head_dim = heads // tp_group().size(), hidden // heads
        self.sequence_parallel = sequence_parallel
        self.wqkv = nn.Parameter(torch.empty(3 * self.heads * self.head_dim, hidden))  # spmd: {tp: S(0)}
        self.wo = nn.Parameter(torch.empty(hidden, self.heads * self.head_dim))  # spmd: {tp: S(1)}

    # spmd: x: {dp: V, tp: S(0) if sequence_parallel else I} -> {dp: V, tp: S(0) if sequence_parallel else I}
    def forward(self, x, mask=None):
        x = enter(x, self.sequence_parallel)
        s, b, _ = x.shape
        qkv = F.linear(x, self.wqkv).view(s, b, 3, self.heads, self.head_dim)
        q, k, v = qkv.permute(2, 1, 3, 0, 4).unbind(0)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(mask, -1e9)
        probs = F.dropout(torch.softmax(scores, dim=-1), 0.1, self.training)
        context = torch.matmul(probs, v).permute(2, 0, 1, 3).reshape(s, b, -1)
        partial = F.linear(context, self.wo)
        return leave(partial, self.sequence_parallel)


class Block(nn.Module):
    def __init__(self, hidden, heads, inner, sequence_parallel=False):
        super().__init__()
        self.sequence_parallel = sequence_parallel
        # Marked: with sequence parallelism the gradient of the norm is summed over tp by `finish`.
        self.norm = nn.Parameter(torch.ones(hidden))  # spmd: {tp: R if sequence_parallel else I}
        self.attention = Attention(hidden, heads, sequence_parallel)
        self.w1 = nn.Parameter(torch.empty(inner // tp_group().size(), hidden))  # spmd: {tp: S(0)}
        self.w2 = nn.Parameter(torch.empty(hidden, inner // tp_group().size()))  # spmd: {tp: S(1)}

    # spmd: x: {dp: V, tp: S(0) if sequence_parallel else I} -> {dp: V, tp: S(0) if sequence_parallel else I}
    def forward(self, x):
        x = x + self.attention(F.rms_norm(x, x.shape[-1:], self.norm))
        hidden = F.gelu(F.linear(enter(x, self.sequence_parallel), self.w1), approximate="tanh")
        return x + leave(F.linear(hidden, self.w2), self.sequence_parallel)

    def finish(self):
        if self.sequence_parallel:
            dist.all_reduce(self.norm.grad, group=tp_group())
