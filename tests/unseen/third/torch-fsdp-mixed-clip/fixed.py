"""Gradient clipping for a model with sharded and unsharded FSDP instances."""
# Source: pytorch/pytorch pull request 88955 (confirmed from the thread)
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


def wrap(encoder, head, process_group):
    """The encoder is sharded; the small head keeps whole parameters on each rank."""
    encoder = FSDP(encoder, process_group=process_group, sharding_strategy=ShardingStrategy.FULL_SHARD)
    head = FSDP(head, process_group=process_group, sharding_strategy=ShardingStrategy.NO_SHARD)
    return encoder, head


def _grad_norm_pow(params, norm_type):
    grads = [p.grad.detach() for p in params if p.grad is not None]
    if not grads:
        return torch.zeros((), device="cuda")
    norms = torch.stack([torch.linalg.vector_norm(g, norm_type, dtype=torch.float32) for g in grads])
    return norms.pow(norm_type).sum()


@torch.no_grad()
def clip_grad_norm_(encoder, head, process_group, max_norm, norm_type=2.0):
    sharded = list(encoder.parameters())
    unsharded = list(head.parameters())
    total = _grad_norm_pow(sharded, norm_type)
    dist.all_reduce(total, group=process_group)
    total = total + _grad_norm_pow(unsharded, norm_type)
    total_norm = total.pow(1.0 / norm_type)
    clip_coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for p in sharded + unsharded:
        if p.grad is not None:
            p.grad.mul_(clip_coef)
    return total_norm


def train_step(encoder, head, batch, optimizer, process_group, loss_fn):
    optimizer.zero_grad()
    loss = loss_fn(head(encoder(batch["input"])), batch["target"])
    loss.backward()
    norm = clip_grad_norm_(encoder, head, process_group, max_norm=1.0)
    optimizer.step()
    return loss.detach(), norm
