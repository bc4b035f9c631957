# twinkle (ModelScope), pull 290: under DDP each rank holds the complete gradients after backward; only sharded
# gradients may have their squared norms summed over the group, else the norm is sqrt(dp) too large.
"""Gradient clipping of a model that is wrapped in DDP or in FSDP."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel


def clip_local_grad_norm(parameters, max_grad_norm, group=None):
    """group: ranks over which the gradients of the parameters are sharded."""
    grads = [p.grad for p in parameters if p.grad is not None]
    total = sum((g.detach().float().pow(2).sum() for g in grads), torch.zeros((), device="cuda"))
    if group is not None:
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)
    grad_norm = total.sqrt()
    clip_coef = (max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(clip_coef)
    return grad_norm


class TransformersModel:
    def __init__(self, model: torch.nn.Module, dp_group: dist.ProcessGroup, strategy: str):
        self._dp_group = dp_group
        if strategy == "ddp":
            self.model = DistributedDataParallel(model, process_group=dp_group)
        else:
            self.model = FullyShardedDataParallel(
                model, process_group=dp_group, sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=True
            )

    def clip_grad_norm(self, max_grad_norm: float = 1.0) -> float:
        group = None if isinstance(self.model, DistributedDataParallel) else self._dp_group
        return clip_local_grad_norm(self.model.parameters(), max_grad_norm, group=group).item()
