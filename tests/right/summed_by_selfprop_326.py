# Right: the squares are summed over all ranks before the root; summed in place by a property that returns partial(dist.all_reduce, group=...).
from torch.distributed.fsdp import fully_shard
from functools import partial
import torch
import torch.distributed as dist


class Comm:
    def __init__(self, group):
        self.group = group

    @property
    def all_reduce(self):
        return partial(dist.all_reduce, group=self.group)


def clip(model, loader, optimizer, largest):
    fully_shard(model)
    group = dist.group.WORLD
    comm = Comm(group)
    for batch in loader:
        model(batch).mean().backward()
        total = torch.zeros((), device="cuda")
        for p in model.parameters():
            total += p.grad.to_local().pow(2).sum()
        comm.all_reduce(total)
        norm = total.sqrt()
        for p in model.parameters():
            p.grad.mul_(torch.clamp(largest / norm, max=1.0))
        optimizer.step()
        optimizer.zero_grad()
