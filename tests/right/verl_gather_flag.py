"""verl's ulysses helpers: gather with an optional factor in the backward, used by a critic and by an actor."""
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

_ULYSSES_GROUP: Optional[dist.ProcessGroup] = None


def set_group(group):
    global _ULYSSES_GROUP
    _ULYSSES_GROUP = group


def get_group():
    return _ULYSSES_GROUP


def get_world_size(group=None):
    group = get_group() if group is None else group
    return dist.get_world_size(group) if group else 1


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group, local: Tensor, dim: int, grad_scaler: bool = True) -> Tensor:
        ctx.group, ctx.dim, ctx.grad_scaler = group, dim, grad_scaler
        ctx.n = dist.get_world_size(group=group)
        ctx.rank = dist.get_rank(group=group)
        ctx.part = local.size(dim)
        shape = list(local.size())
        shape[0] = shape[0] * ctx.n
        out = torch.empty(shape, dtype=local.dtype, device=local.device)
        dist.all_gather_into_tensor(out, local.contiguous(), group=group)
        return torch.cat(out.split(local.size(0), dim=0), dim=dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor):
        if ctx.grad_scaler:
            grad = grad * ctx.n
        return None, grad.split(ctx.part, dim=ctx.dim)[ctx.rank].contiguous(), None, None


def gather_outputs(x: Tensor, dim: int, grad_scaler: bool = True, group=None):
    group = get_group() if group is None else group
    if group is None:
        return x
    return Gather.apply(group, x, dim, grad_scaler)


def slice_input(x: Tensor, dim: int):
    n = get_world_size()
    if n == 1:
        return x
    return x.chunk(n, dim=dim)[dist.get_rank(get_group())].contiguous()


def value_loss(critic, ids, returns, mask):
    values = critic(slice_input(ids, 1)).squeeze(-1)
    values = gather_outputs(values, dim=1)
    return ((values - returns).pow(2) * mask).sum() / mask.sum()
