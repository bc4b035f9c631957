"""Transformer block with sequence parallel dropout, layout [s, b, h]."""
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class RngTracker:
    """Keeps a CUDA generator state that differs between tensor parallel ranks."""

    def __init__(self, seed, tp_group, dp_group):
        base = seed + 1000 * dp_group.rank()
        torch.cuda.manual_seed(base + 2718 + tp_group.rank())
        self.state = torch.cuda.get_rng_state()
        torch.cuda.manual_seed(base)

    @contextlib.contextmanager
    def fork(self):
        outer = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(self.state)
        try:
            yield
        finally:
            self.state = torch.cuda.get_rng_state()
            torch.cuda.set_rng_state(outer)


class _GatherSeq(torch.autograd.Function):
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


class _ReduceScatterSeq(torch.autograd.Function):
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


class Layer(nn.Module):
    def __init__(self, hidden, ffn, dropout, group):
        super().__init__()
        self.group, self.dropout = group, dropout
        self.norm = nn.LayerNorm(hidden)
        for param in self.norm.parameters():
            param.sequence_parallel = True
        self.up = nn.Linear(hidden, ffn // group.size(), bias=False)
        self.down = nn.Linear(ffn // group.size(), hidden, bias=False)

    def forward(self, x):
        full = _GatherSeq.apply(self.norm(x), self.group)
        out = _ReduceScatterSeq.apply(self.down(F.gelu(self.up(full))), self.group)
        return x + F.dropout(out, self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, depth, hidden, ffn, dropout, group, tracker, bf16):
        super().__init__()
        self.layers = nn.ModuleList(Layer(hidden, ffn, dropout, group) for _ in range(depth))
        self.tracker, self.bf16 = tracker, bf16

    def forward(self, x):
        rng_context = self.tracker.fork()
        precision_context = torch.autocast("cuda", torch.bfloat16, enabled=self.bf16)
        with rng_context, precision_context:
            for layer in self.layers:
                x = layer(x)
        return x


def prepare(model, dp_group):
    for param in model.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)


def reduce_gradients(model, tp_group, dp_group):
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, group=tp_group)
        dist.all_reduce(param.grad, group=dp_group)
        param.grad.div_(dp_group.size())


def train_step(model, optimizer, x, target, tp_group, dp_group):
    size, rank = tp_group.size(), tp_group.rank()
    out = model(x.chunk(size, dim=0)[rank]).float()
    loss = F.mse_loss(out, target.chunk(size, dim=0)[rank], reduction="sum") / target.numel()
    optimizer.zero_grad()
    loss.backward()
    reduce_gradients(model, tp_group, dp_group)
    optimizer.step()
