"""FSDP2 gradient clipping with hybrid sharding."""
# thread: ByteDance-Seed/VeOmni#862
import math
from typing import List

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ..parallel_state import get_parallel_state


def parallelize_model_fsdp2(model, basic_modules):
    ps = get_parallel_state()
    mesh = ps.device_mesh["dp_replicate", "dp_shard_sp"] if ps.dp_replicate_enabled else ps.fsdp_mesh
    for module in model.modules():
        if module.__class__.__name__ in basic_modules:
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _local_pth_sum(params: List[torch.nn.Parameter], p: float) -> torch.Tensor:
    res = torch.zeros((), dtype=torch.float32, device="cuda")
    for q in params:
        g = q.grad.to_local() if isinstance(q.grad, DTensor) else q.grad
        res += torch.linalg.vector_norm(g.detach().float(), ord=p) ** p
    return res


def _local_max(params):
    res = torch.zeros((), dtype=torch.float32, device="cuda")
    for q in params:
        g = q.grad.to_local() if isinstance(q.grad, DTensor) else q.grad
        if g.numel() > 0:
            res = torch.maximum(res, g.detach().float().abs().max())
    return res


@torch.no_grad()
def fsdp2_clip_grad_norm(model, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    ps = get_parallel_state()
    # ps.fsdp_group spans dp_replicate x dp_shard x sp
    reduce_group = ps.fsdp_group  # BUG: counts every shard once per replica under hybrid sharding
    params = [p for p in model.parameters() if p.grad is not None]

    if math.isinf(norm_type):
        total_norm = _local_max(params)
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=reduce_group)
    else:
        total = _local_pth_sum(params, norm_type)
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=reduce_group)
        total_norm = total ** (1.0 / norm_type)

    torch.nn.utils.clip_grads_with_norm_(params, max_norm, total_norm)
    return total_norm
