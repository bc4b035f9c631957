"""Gradient clipping for FSDP2 combined with tensor parallelism."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate

# spmd: mesh dense = dp, tp


def fsdp2_grad_norm(parameters, device_mesh):
    dp_group, tp_group = device_mesh["dp"].get_group(), device_mesh["tp"].get_group()
    total = torch.zeros(1, device="cuda")
    for p in parameters:
        # placements are (Shard(0), x): x is Shard for linears, Replicate for norms and routers
        if isinstance(p.grad.placements[-1], Replicate) and dist.get_rank(tp_group) != 0:
            continue
        total += p.grad.to_local().float().pow(2).sum()
    dist.all_reduce(total, group=dp_group)
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()


def clip_and_step(model, device_mesh, optimizer, max_norm):
    params = [p for p in model.parameters() if p.grad is not None]
    norm = fsdp2_grad_norm(params, device_mesh)
    clip_coef = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.to_local().mul_(clip_coef)
    optimizer.step()
    return norm.item()
