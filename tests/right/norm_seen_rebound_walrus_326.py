# Right: the norm is that of all shards: the sum of the gathered squares is bound by `:=`.
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def clip(model, loader, optimizer, largest):
    fully_shard(model)
    for batch in loader:
        model(batch).mean().backward()
        total = torch.zeros((), device="cuda")
        for p in model.parameters():
            total += p.grad.to_local().pow(2).sum()
        parts = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, total)
        print(total := sum(parts))
        norm = total**0.5
        for p in model.parameters():
            p.grad.mul_(min(largest / norm, 1.0))
        optimizer.step()
        optimizer.zero_grad()
