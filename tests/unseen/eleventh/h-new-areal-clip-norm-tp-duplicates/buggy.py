"""Gradient clipping for FSDP2 combined with tensor parallelism."""
import torch
import torch.distributed as dist

# spmd: mesh dense = dp, tp


def fsdp2_grad_norm(parameters, device_mesh):
    dp_group, tp_group = device_mesh["dp"].get_group(), device_mesh["tp"].get_group()
    total = torch.zeros(1, device="cuda")
    for p in parameters:
        # placements are (Shard(0), x): x is Shard for linears, Replicate for norms and routers
        total += p.grad.to_local().float().pow(2).sum()
    dist.all_reduce(total, group=dp_group)
    dist.all_reduce(total, group=tp_group)  # BUG: gradients replicated over tp are counted tp times
    return total.sqrt()


def clip_and_step(model, device_mesh, optimizer, max_norm):
    params = [p for p in model.parameters() if p.grad is not None]
    norm = fsdp2_grad_norm(params, device_mesh)
    clip_coef = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.to_local().mul_(clip_coef)
    optimizer.step()
    return norm.item()
