"""Gradient norm of a tensor-parallel model."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local(t):
    return t.to_local() if isinstance(t, DTensor) else t


def is_tp_sharded(p):
    return isinstance(p, DTensor) and any(x.is_shard() for x in p.placements)


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group, norm_type=2.0):
    sharded = torch.zeros(1, device="cuda")
    replicated = torch.zeros(1, device="cuda")  # norm weights, biases, router: equal on all TP ranks
    for p in parameters:
        part = torch.linalg.vector_norm(to_local(p.grad), ord=norm_type) ** norm_type
        if is_tp_sharded(p):
            sharded += part
        else:
            replicated += part
    total = sharded + replicated
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=tp_group)  # BUG: replicated gradients count tp times
    return total.item() ** (1.0 / norm_type)
