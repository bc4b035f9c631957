# thread: https://github.com/pytorch/pytorch/pull/88955
"""Norm clipping for a tree of data-parallel units with mixed sharding strategies."""
import math
from enum import Enum, auto
from typing import Iterator, List

import torch
import torch.distributed as dist
from torch import nn


class ShardingStrategy(Enum):
    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()


class FlatParamHandle:
    """Flat parameter of one unit; with NO_SHARD every rank keeps all of it."""

    def __init__(self, params: List[nn.Parameter], strategy: ShardingStrategy, group):
        self.strategy, self.group = strategy, group
        flat = torch.cat([p.detach().reshape(-1) for p in params])
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        self.unpadded = flat.numel()
        flat = torch.cat([flat, flat.new_zeros(-flat.numel() % world)])
        local = flat if not self.uses_sharded_strategy else flat.chunk(world)[rank]
        self.flat_param = nn.Parameter(local.clone())

    @property
    def uses_sharded_strategy(self) -> bool:
        return self.strategy != ShardingStrategy.NO_SHARD

    @torch.no_grad()
    def post_backward(self, unsharded_grad: torch.Tensor):
        world = dist.get_world_size(self.group)
        unsharded_grad.div_(world)
        if self.uses_sharded_strategy:
            out = torch.empty_like(self.flat_param)
            dist.reduce_scatter_tensor(out, unsharded_grad, group=self.group)
            self.flat_param.grad = out
        else:
            dist.all_reduce(unsharded_grad, group=self.group)
            self.flat_param.grad = unsharded_grad


def _get_grad_norm(params, norm_type: float, device) -> torch.Tensor:
    grads = [p.grad for p in params if p.grad is not None]
    if not grads:
        return torch.zeros((), device=device)
    norms = torch.stack([torch.linalg.vector_norm(g.detach(), norm_type, dtype=torch.float32) for g in grads])
    return torch.linalg.vector_norm(norms, norm_type)


class FullyShardedRoot(nn.Module):
    def __init__(self, module: nn.Module, handles: List[FlatParamHandle], process_group, compute_device):
        super().__init__()
        self.module = module
        self._handles = handles
        self.process_group = process_group
        self.compute_device = compute_device

    def handles(self) -> Iterator[FlatParamHandle]:
        return iter(self._handles)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        max_norm, norm_type = float(max_norm), float(norm_type)
        params = [h.flat_param for h in self.handles()]
        total_norm = _get_grad_norm(params, norm_type, self.compute_device)
        if norm_type == math.inf:
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=self.process_group)
        else:
            total_norm = total_norm**norm_type
            dist.all_reduce(total_norm, group=self.process_group)  # BUG
            total_norm = total_norm ** (1.0 / norm_type)
        coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
        for param in params:
            if param.grad is not None:
                param.grad.detach().mul_(coef)
        return total_norm


def run_step(model: FullyShardedRoot, optimizer, batch, max_norm):
    loss = model(batch["inputs"]).mean()
    loss.backward()
    norm = model.clip_grad_norm_(max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach(), norm
