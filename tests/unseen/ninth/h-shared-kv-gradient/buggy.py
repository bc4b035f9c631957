"""Multi-query attention with query heads split over the tensor parallel group."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MultiQueryAttention(nn.Module):
    def __init__(self, hidden, heads, group):
        super().__init__()
        self.group = group
        self.heads = heads // group.size()
        self.head_dim = hidden // heads
        self.query = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.key_value = nn.Linear(hidden, 2 * self.head_dim, bias=False)
        self.out = nn.Linear(self.heads * self.head_dim, hidden, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        parallel = CopyToTP.apply(x, self.group)
        q = self.query(parallel).view(b, s, self.heads, self.head_dim).transpose(1, 2)
        kv = self.key_value(parallel)  # BUG
        k, v = kv.unsqueeze(1).chunk(2, dim=-1)
        k, v = (t.expand(-1, self.heads, -1, -1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, s, -1)
        return ReduceFromTP.apply(self.out(y), self.group)


class ParallelMlp(nn.Module):
    def __init__(self, hidden, group):
        super().__init__()
        self.group = group
        self.up = nn.Linear(hidden, 4 * hidden // group.size(), bias=False)
        self.down = nn.Linear(4 * hidden // group.size(), hidden, bias=False)

    def forward(self, x):
        x = CopyToTP.apply(x, self.group)
        return ReduceFromTP.apply(self.down(F.gelu(self.up(x))), self.group)


class Decoder(nn.Module):
    def __init__(self, vocab, hidden, heads, depth, group):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.attention = nn.ModuleList(MultiQueryAttention(hidden, heads, group) for _ in range(depth))
        self.mlp = nn.ModuleList(ParallelMlp(hidden, group) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2 * depth + 1))
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlp)):
            x = x + attention(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        return self.head(self.norms[-1](x))


def replicated(model):
    yield from model.embed.parameters()
    yield from model.norms.parameters()
    yield from model.head.parameters()
    for attention in model.attention:
        yield from attention.key_value.parameters()


def prepare(model, tp_group, dp_group):
    for param in replicated(model):
        dist.broadcast(param.data, src=dist.get_global_rank(tp_group, 0), group=tp_group)
    for param in model.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)


def train_step(model, optimizer, tokens, targets, dp_group):
    loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    for param in model.parameters():
        dist.all_reduce(param.grad, group=dp_group)
        param.grad.div_(dp_group.size())
    optimizer.step()
    report = loss.detach() / dp_group.size()
    dist.all_reduce(report, group=dp_group)
    return report
