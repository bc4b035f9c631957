"""Attention with normalized queries and keys, heads split over the tensor parallel group."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.size(0) * group.size(), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.size(0) // ctx.group.size(), *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.size(0) // group.size(), *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.size(0) * ctx.group.size(), *grad.shape[1:])
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class RMSNorm(nn.Module):
    def __init__(self, dim, sum_over_tp):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.weight.sum_over_tp = sum_over_tp

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    def __init__(self, hidden, heads, tp_group, sequence_parallel):
        super().__init__()
        self.tp_group = tp_group
        self.sequence_parallel = sequence_parallel
        self.local_heads = heads // tp_group.size()
        self.head_dim = hidden // heads
        local = self.local_heads * self.head_dim
        self.input_norm = RMSNorm(hidden, sum_over_tp=sequence_parallel)
        self.q_norm = RMSNorm(self.head_dim, sum_over_tp=sequence_parallel)  # BUG
        self.k_norm = RMSNorm(self.head_dim, sum_over_tp=sequence_parallel)
        self.qkv = nn.Linear(hidden, 3 * local, bias=False)
        self.out = nn.Linear(local, hidden, bias=False)

    def forward(self, x):
        enter = _Gather if self.sequence_parallel else _Copy
        leave = _Scatter if self.sequence_parallel else _Reduce
        h = enter.apply(self.input_norm(x), self.tp_group)
        s, b, _ = h.shape
        q, k, v = self.qkv(h).view(s, b, self.local_heads, 3 * self.head_dim).chunk(3, dim=-1)
        q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        ctx = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        ctx = ctx.permute(2, 0, 1, 3).reshape(s, b, -1)
        return x + leave.apply(self.out(ctx), self.tp_group)


def prepare(model, dp_group):
    for param in model.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)


def finalize_model_grads(model, tp_group, dp_group):
    for param in model.parameters():
        if getattr(param, "sum_over_tp", False):
            dist.all_reduce(param.grad, group=tp_group)
        dist.all_reduce(param.grad, group=dp_group)
        param.grad.div_(dp_group.size())


def train_step(model, optimizer, x, target, tp_group, dp_group, sequence_parallel):
    optimizer.zero_grad()
    count = target.numel()
    if sequence_parallel:
        x = x.chunk(tp_group.size(), dim=0)[tp_group.rank()]
        target = target.chunk(tp_group.size(), dim=0)[tp_group.rank()]
    loss = F.mse_loss(model(x), target, reduction="sum") / count
    loss.backward()
    finalize_model_grads(model, tp_group, dp_group)
    optimizer.step()
    report = loss.detach().clone() / dp_group.size()
    dist.all_reduce(report, group=dp_group)
    if sequence_parallel:
        dist.all_reduce(report, group=tp_group)
    return report
