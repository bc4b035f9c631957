"""Bucketed gradient reduction for weights shared over different groups of a model-parallel mesh."""
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from utils import comm


def group_parameters(model):
    buckets = {}
    for p in model.parameters():
        if p.requires_grad:
            # e.g. "dp" or "dp-cp": weights that see a part of the sequence are also summed over cp
            name = "-".join(["dp", *getattr(p, "is_shared_mp", [])])
            buckets.setdefault(name, []).append(p)
    return buckets


def sync_gradients(model):
    dp_size = comm.get_size("dp")
    pending = []
    for name, params in group_parameters(model).items():
        grads = [p.grad for p in params if p.grad is not None]
        if not grads:
            continue
        coalesced = _flatten_dense_tensors(grads)
        coalesced.div_(dp_size)
        work = dist.all_reduce(coalesced, group=comm.get_group(name), async_op=True)
        pending.append((work, grads, coalesced))
    for work, grads, coalesced in pending:
        for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)  # BUG: the reduction may still be running
        work.wait()
