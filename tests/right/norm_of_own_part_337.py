"""each rank squares its own part of the flat gradient (equal on all ranks after the reduction); the sum of the squares over the ranks is the whole norm."""
import torch
import torch.distributed as dist


def sharded_norm(flat, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    part = flat.numel() // size
    mine = flat.narrow(0, rank * part, part)
    total = mine.float().pow(2).sum()
    dist.all_reduce(total, group=group)
    if flat.numel() % size:
        total = total + flat[part * size :].float().pow(2).sum()
    return total.sqrt()


def step(model, optimizer, max_norm, group):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=group)
    flat.mul_((max_norm / (sharded_norm(flat, group) + 1e-6)).clamp(max=1.0))
    offset = 0
    for g in grads:
        g.copy_(flat[offset : offset + g.numel()].view_as(g))
        offset += g.numel()
    optimizer.step()
    optimizer.zero_grad()
