"""Language model head: column parallel projection and cross entropy over the shards of the vocabulary."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class HeadConfig:
    hidden: int
    vocab: int
    ignore_index: int = -100


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


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class GatherLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(ctx.group.size(), dim=-1)[ctx.group.rank()].contiguous(), None


class OutputLayer(nn.Module):
    def __init__(self, cfg, group, gather_output):
        super().__init__()
        self.group, self.gather_output = group, gather_output
        self.weight = nn.Parameter(torch.empty(cfg.vocab // group.size(), cfg.hidden))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, hidden, gather_output=None):
        gather = self.gather_output if gather_output is None else gather_output
        logits = F.linear(Copy.apply(hidden, self.group), self.weight)
        return GatherLast.apply(logits, self.group) if gather else logits


def shard_cross_entropy(logits, target, ignore_index, group):
    logits = logits.float()
    size = logits.size(-1)
    offset = group.rank() * size
    peak = logits.detach().max(dim=-1, keepdim=True).values
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=group)
    logits = logits - peak
    here = (target >= offset) & (target < offset + size)
    index = torch.where(here, target - offset, 0)
    picked = logits.gather(-1, index.unsqueeze(-1)).squeeze(-1) * here
    picked = Sum.apply(picked, group)
    denominator = Sum.apply(logits.exp().sum(dim=-1), group)
    return (denominator.log() - picked).masked_fill(target == ignore_index, 0.0)


class CausalLM(nn.Module):
    def __init__(self, backbone, cfg, group):
        super().__init__()
        self.cfg, self.group = cfg, group
        self.backbone = backbone
        self.output = OutputLayer(cfg, group, gather_output=False)

    def forward(self, tokens, labels=None):
        hidden = self.backbone(tokens)
        if labels is None:
            return self.output(hidden, gather_output=True)
        logits = self.output(hidden)
        return shard_cross_entropy(logits, labels, self.cfg.ignore_index, self.group)


def prepare(model, tp_group, dp_group):
    for param in model.backbone.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(tp_group, 0), group=tp_group)
    for param in model.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)


def train_step(model, optimizer, tokens, labels, dp_group):
    optimizer.zero_grad(set_to_none=False)
    count = (labels != model.cfg.ignore_index).sum()
    dist.all_reduce(count, group=dp_group)
    loss = model(tokens, labels).sum() / count
    loss.backward()
    for param in model.parameters():
        dist.all_reduce(param.grad, group=dp_group)
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total, group=dp_group)
    return total
