# Right: the squares are summed over all ranks before the root; reduce-scattered, gathered, and copied back (two-shot all-reduce).
from torch.distributed.fsdp import fully_shard
import torch
import torch.distributed as dist


def clip(model, loader, optimizer, largest):
    fully_shard(model)
    group = dist.group.WORLD
    for batch in loader:
        model(batch).mean().backward()
        total = torch.zeros((), device="cuda")
        for p in model.parameters():
            total += p.grad.to_local().pow(2).sum()
        flat = total.reshape(-1)
        pad = torch.nn.functional.pad(flat, (0, -flat.numel() % group.size()))
        part = pad.new_empty(pad.numel() // group.size())
        dist.reduce_scatter_tensor(part, pad, group=group)
        dist.all_gather_into_tensor(pad, part, group=group)
        total.copy_(pad[: flat.numel()].view_as(total))
        norm = total.sqrt()
        for p in model.parameters():
            p.grad.mul_(torch.clamp(largest / norm, max=1.0))
        optimizer.step()
        optimizer.zero_grad()
