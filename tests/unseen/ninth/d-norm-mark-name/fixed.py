"""Feed-forward stack with Megatron style sequence parallelism, layout [s, b, h]."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


@dataclasses.dataclass
class StackConfig:
    hidden: int = 1024
    ffn: int = 4096
    layers: int = 12
    eps: float = 1e-5
    lr: float = 3e-4


class _GatherSequence(torch.autograd.Function):
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


class _ReduceScatterSequence(torch.autograd.Function):
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


class ShardedInputNorm(nn.Module):
    """LayerNorm over hidden; every rank normalizes its own part of the sequence."""

    def __init__(self, hidden, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        for param in (self.weight, self.bias):
            param.sequence_parallel = True

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class FeedForward(nn.Module):
    def __init__(self, cfg, tp_group):
        super().__init__()
        self.tp_group = tp_group
        inner = cfg.ffn // tp_group.size()
        self.norm = ShardedInputNorm(cfg.hidden, cfg.eps)
        self.up = nn.Linear(cfg.hidden, inner, bias=False)
        self.down = nn.Linear(inner, cfg.hidden, bias=False)

    def forward(self, x):
        full = _GatherSequence.apply(self.norm(x), self.tp_group)
        partial = self.down(F.gelu(self.up(full)))
        return x + _ReduceScatterSequence.apply(partial, self.tp_group)


class Stack(nn.Module):
    def __init__(self, cfg, tp_group):
        super().__init__()
        self.layers = nn.ModuleList(FeedForward(cfg, tp_group) for _ in range(cfg.layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def _coalesced_sum(grads, group):
    if grads:
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat, group=group)
        for grad, summed in zip(grads, _unflatten_dense_tensors(flat, grads)):
            grad.copy_(summed)


def finalize_gradients(model, tp_group, dp_group):
    marked = [p.grad for p in model.parameters() if getattr(p, "sequence_parallel", False)]
    _coalesced_sum(marked, tp_group)
    everything = [p.grad for p in model.parameters()]
    _coalesced_sum(everything, dp_group)
    for grad in everything:
        grad.div_(dp_group.size())


def train(cfg, tp_group, dp_group, batches, device):
    model = Stack(cfg, tp_group).to(device)
    for param in model.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for inputs, targets in batches:
        rank, size = tp_group.rank(), tp_group.size()
        x = inputs.to(device).chunk(size, dim=0)[rank]
        y = targets.to(device).chunk(size, dim=0)[rank]
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).sum() / targets.numel()
        loss.backward()
        finalize_gradients(model, tp_group, dp_group)
        optimizer.step()
