# ByteDance-Seed/VeOmni pull request 862 (commit 3506c435)
"""Gradient norm clipping for FSDP2 with optional hybrid sharding."""
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


@dataclass
class ParallelState:
    dp_replicate_size: int
    dp_shard_size: int

    def __post_init__(self):
        self.mesh = init_device_mesh(
            "cuda", (self.dp_replicate_size, self.dp_shard_size), mesh_dim_names=("dp_replicate", "dp_shard")
        )

    @property
    def fsdp_mesh(self):
        return self.mesh if self.dp_replicate_size > 1 else self.mesh["dp_shard"]

    @property
    def dp_shard_group(self):
        return self.mesh["dp_shard"].get_group()


def parallelize(model, ps):
    for block in model.layers:
        fully_shard(block, mesh=ps.fsdp_mesh)
    return fully_shard(model, mesh=ps.fsdp_mesh)


def _local_pth_sum(params, p):
    total = torch.zeros((), dtype=torch.float32, device="cuda")
    for param in params:
        if param.grad is None:
            continue
        g = param.grad.to_local() if isinstance(param.grad, DTensor) else param.grad
        if math.isinf(p):
            if g.numel() > 0:
                total = torch.maximum(total, g.detach().abs().max().float())
        else:
            total = total + g.detach().float().abs().pow(p).sum()
    return total


@torch.no_grad()
def clip_grad_norm(model, ps, max_norm, norm_type=2.0):
    params = list(model.parameters())
    total = _local_pth_sum(params, norm_type)
    op = dist.ReduceOp.MAX if math.isinf(norm_type) else dist.ReduceOp.SUM
    reduce_group = ps.dp_shard_group
    dist.all_reduce(total, op=op, group=reduce_group)
    total_norm = total if math.isinf(norm_type) else total.pow(1.0 / norm_type)
    coef = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for param in params:
        if param.grad is not None:
            g = param.grad.to_local() if isinstance(param.grad, DTensor) else param.grad
            g.mul_(coef.to(g.dtype))
    return total_norm
