"""Optimizer state sharding."""
# thread: facebookresearch/fairscale#167
from itertools import chain
from math import inf
from typing import Any, List, Type, Union

import torch
import torch.distributed as dist
from torch.optim import SGD, Optimizer


class OSS(Optimizer):
    def __init__(self, params, optim: Type[Optimizer] = SGD, group: Any = dist.group.WORLD, **defaults: Any):
        super().__init__(params, dict(defaults))
        self.group = group
        self.world_size = dist.get_world_size(self.group)
        self.rank = dist.get_rank(self.group)
        self.optim = optim(self.partition_parameters()[self.rank], **defaults)

    def partition_parameters(self) -> List[List[dict]]:
        """Greedy split of the parameters over the ranks, by size."""
        partitions: List[List[dict]] = [[] for _ in range(self.world_size)]
        sizes = [0] * self.world_size
        for param_group in self.param_groups:
            param_lists: List[List] = [[] for _ in range(self.world_size)]
            for param in param_group["params"]:
                rank = sizes.index(min(sizes))
                param_lists[rank].append(param)
                sizes[rank] += param.numel()
            for rank, params in enumerate(param_lists):
                partitions[rank].append({**param_group, "params": params})
        return partitions

    def clip_grad_norm(self, max_norm: Union[float, int], norm_type: Union[float, int] = 2.0) -> torch.Tensor:
        """Each rank owns the reduced gradients of its own partition only."""
        max_norm = float(max_norm)
        norm_type = float(norm_type)
        local_params = [
            p for p in chain(*(g["params"] for g in self.optim.param_groups)) if p.grad is not None
        ]
        device = next(iter(chain(*(g["params"] for g in self.param_groups)))).device

        if norm_type == inf:
            total_norm = torch.zeros((), device=device)
            for p in local_params:
                total_norm = torch.maximum(total_norm, p.grad.detach().abs().max())
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=self.group)
        else:
            total_norm = torch.zeros((), device=device)
            for p in local_params:
                total_norm += torch.norm(p.grad.detach(), norm_type) ** norm_type
            total_norm = total_norm ** (1.0 / norm_type)
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=self.group)  # BUG: largest shard norm, not the norm of all shards

        clip_coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
        for p in local_params:
            p.grad.detach().mul_(clip_coef)
        return total_norm
