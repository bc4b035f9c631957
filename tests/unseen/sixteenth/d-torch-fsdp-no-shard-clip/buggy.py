# pytorch/pytorch pull request 88955
# FSDP.clip_grad_norm_ sums the local norms over the group as if all gradients were shards; NO_SHARD instances
# hold the whole gradient on every rank and are counted world_size times.
"""Gradient clipping of a fully sharded module with nested sharded and unsharded instances."""
import math
from typing import List

import torch
import torch.distributed as dist
from torch import nn


class FlatParamHandle:
    def __init__(self, flat_param: nn.Parameter, sharding_strategy: str):
        self.flat_param = flat_param
        self.sharding_strategy = sharding_strategy  # "FULL_SHARD", "SHARD_GRAD_OP" or "NO_SHARD"

    @property
    def uses_sharded_strategy(self):
        return self.sharding_strategy != "NO_SHARD"


def _get_grad_norm(handles: List[FlatParamHandle], norm_type: float, device) -> torch.Tensor:
    grads = [h.flat_param.grad for h in handles if h.flat_param.grad is not None]
    if len(grads) == 0:
        return torch.tensor(0.0, device=device)
    norms = [torch.linalg.vector_norm(g.detach(), norm_type, dtype=torch.float32) for g in grads]
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)


class FullyShardedDataParallel(nn.Module):
    def __init__(self, module, handles: List[FlatParamHandle], process_group, compute_device):
        super().__init__()
        self.module, self._handles = module, handles
        self.process_group, self.compute_device = process_group, compute_device

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        local_norm = _get_grad_norm(self._handles, norm_type, self.compute_device)
        if norm_type == math.inf:
            total_norm = local_norm
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=self.process_group)
        else:
            total_norm = local_norm**norm_type
            dist.all_reduce(total_norm, group=self.process_group)  # BUG
            total_norm = total_norm ** (1.0 / norm_type)
        clip_coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
        for handle in self._handles:
            if handle.flat_param.grad is not None:
                handle.flat_param.grad.mul_(clip_coef.to(handle.flat_param.grad.dtype))
        return total_norm
