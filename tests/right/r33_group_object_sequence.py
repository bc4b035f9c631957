from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Optional, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GroupHandle:
    ranks: tuple
    local_rank: int
    process_group: Any

    @property
    def size(self):
        return len(self.ranks)

    @property
    def is_trivial(self):
        return self.size == 1


class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: GroupHandle):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        if ctx.group.is_trivial:
            return grad, None
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group.process_group)
        return grad, None


class ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: GroupHandle):
        if group.is_trivial:
            return x
        x = x.clone()
        dist.all_reduce(x, group=group.process_group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ScatterTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: GroupHandle):
        ctx.group = group
        return x.chunk(group.size, dim=1)[group.local_rank].contiguous()

    @staticmethod
    def backward(ctx, grad):
        parts = [torch.empty_like(grad) for _ in range(ctx.group.size)]
        dist.all_gather(parts, grad.contiguous(), group=ctx.group.process_group)
        return torch.cat(parts, dim=1), None


class GatherFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group: GroupHandle):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(group.size)]
        dist.all_gather(parts, x.contiguous(), group=group.process_group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(ctx.group.size, dim=1)[ctx.group.local_rank].contiguous(), None


class Wrapped(nn.Module):
    def __init__(self, model, cp: GroupHandle):
        super().__init__()
        self.model, self.cp = model, cp

    def forward(self, ids, labels):
        n = ids.shape[1] // self.cp.size
        lo = self.cp.local_rank * n
        ids, labels = ids[:, lo : lo + n], labels[:, lo : lo + n]
        logits = self.model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        count = torch.tensor(labels.numel(), device=ids.device)
        dist.all_reduce(count, group=self.cp.process_group)
        return loss / count


def step(model: Wrapped, ids, labels, cp: GroupHandle, optimizer):
    model(ids, labels).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=cp.process_group)
    optimizer.step()
