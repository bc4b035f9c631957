"""Norm of the gradients of a sharded model: the squares are summed over every axis that splits a parameter."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp_shard", "tp"))


@torch.no_grad()
def clip_grad_norm(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    squares = torch.stack([g.pow(2).sum() for g in grads]).sum()
    dist.all_reduce(squares, op=dist.ReduceOp.SUM, group=mesh.get_group("dp_shard"))
    dist.all_reduce(squares, op=dist.ReduceOp.SUM, group=mesh.get_group("tp"))
    norm = squares.sqrt()
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for grad in grads:
        grad.mul_(factor)
    return norm
