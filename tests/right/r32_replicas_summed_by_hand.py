"""Gradients of replicas are summed after the backward pass."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model, mesh):
    over = mesh["dp_shard"]
    if over.size() > 1 or mesh["dp_replicate"].size() > 1:
        fully_shard(model, mesh=over)


def step(model, optimizer, mesh):
    for p in model.parameters():
        dist.all_reduce(p.grad.to_local(), op=dist.ReduceOp.AVG, group=mesh["dp_replicate"].get_group())
    optimizer.step()
