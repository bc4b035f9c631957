"""Gradient clipping for embodied models."""
# thread: baidu-baige/LoongForge#152
from typing import Iterable

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor


def _local(t: torch.Tensor) -> torch.Tensor:
    return t.to_local() if isinstance(t, DTensor) else t


def _clean_non_finite(grads: Iterable[torch.Tensor]) -> None:
    for g in grads:
        local = _local(g)
        torch.nan_to_num_(local, nan=0.0, posinf=0.0, neginf=0.0)


@torch.no_grad()
def get_grad_norm(grads, norm_type: float = 2.0) -> torch.Tensor:
    return torch.nn.utils.get_total_norm([_local(g) for g in grads], norm_type=norm_type)  # BUG: norm of this rank's shards, never reduced


@torch.no_grad()
def clip_gradients(model: torch.nn.Module, max_norm: float, norm_type: float = 2.0, clean: bool = True):
    parameters = [p for p in model.parameters() if p.grad is not None]
    grads = [p.grad for p in parameters]
    if not grads:
        return torch.zeros((), device="cuda")
    if clean:
        _clean_non_finite(grads)
    total_norm = get_grad_norm(grads, norm_type)
    if max_norm > 0:
        clip_coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
        for g in grads:
            _local(g).mul_(clip_coef)
    return total_norm


class VLATrainer:
    def __init__(self, model, optimizer_cls, mesh, cfg):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.action_expert.layers:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        self.model = fully_shard(model, mesh=mesh, mp_policy=policy)
        self.optimizer = optimizer_cls(self.model.parameters(), lr=cfg.lr)
        self.cfg = cfg

    def train_step(self, micro_batches):
        for i, batch in enumerate(micro_batches):
            self.model.set_requires_gradient_sync(i == len(micro_batches) - 1)
            loss = self.model(**batch)["action_loss"] / len(micro_batches)
            loss.backward()
        grad_norm = clip_gradients(self.model, self.cfg.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return grad_norm
