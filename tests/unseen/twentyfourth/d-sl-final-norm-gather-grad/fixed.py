"""Sequence parallelism in a decoder: gather after the final norm.

After awslabs/slapo PR #20 (slapo/op and the GPT schedule; activations are batch first).
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def _all_gather(x, dim, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=dim)


def _split(x, dim, group):
    return x.chunk(dist.get_world_size(group), dim=dim)[dist.get_rank(group)].contiguous()


def _reduce_scatter(x, dim, group):
    parts = [p.contiguous() for p in x.chunk(dist.get_world_size(group), dim=dim)]
    out = torch.empty_like(parts[0])
    dist.reduce_scatter(out, parts, group=group)
    return out


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group, tensor_parallel_output_grad):
        ctx.args = dim, group, tensor_parallel_output_grad
        return _all_gather(x, dim, group)

    @staticmethod
    def backward(ctx, grad):
        dim, group, tensor_parallel_output_grad = ctx.args
        # sum when each rank did its own part of the work that follows, else keep the local slice
        op = _reduce_scatter if tensor_parallel_output_grad else _split
        return op(grad, dim, group), None, None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.args = dim, group
        return _reduce_scatter(x, dim, group)

    @staticmethod
    def backward(ctx, grad):
        return _all_gather(grad, *ctx.args), None, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.args = dim, group
        return _split(x, dim, group)

    @staticmethod
    def backward(ctx, grad):
        return _all_gather(grad, *ctx.args), None, None


class Block(nn.Module):
    def __init__(self, hidden, ffn, group):
        super().__init__()
        self.group, tp = group, dist.get_world_size(group)
        self.ln = nn.LayerNorm(hidden)
        self.fc1 = nn.Linear(hidden, ffn // tp)
        self.fc2 = nn.Linear(ffn // tp, hidden, bias=False)
        self.fc2_bias = nn.Parameter(torch.zeros(hidden))
        for p in (self.ln.weight, self.ln.bias, self.fc2_bias):
            p.sequence_parallel = True

    def forward(self, x):
        h = _AllGather.apply(self.ln(x), 1, self.group, True)
        h = self.fc2(F.gelu(self.fc1(h)))
        return x + _ReduceScatter.apply(h, 1, self.group) + self.fc2_bias


class Decoder(nn.Module):
    """Embedding and head are the same on each rank; blocks are tensor parallel."""

    def __init__(self, vocab, hidden, ffn, layers, group):
        super().__init__()
        self.group = group
        self.embed = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, ffn, group) for _ in range(layers))
        self.final_ln = nn.LayerNorm(hidden)
        for p in self.final_ln.parameters():
            p.sequence_parallel = True
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, labels):
        x = _Scatter.apply(self.embed(tokens), 1, self.group)
        for block in self.blocks:
            x = block(x)
        x = _AllGather.apply(self.final_ln(x), 1, self.group, False)
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def reduce_sequence_parallel_grads(model, group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.grad, group=group)
