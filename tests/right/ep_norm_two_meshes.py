"""Norm of gradients on two meshes: each part becomes a number, then both are put together."""
import math

import torch
from torch.distributed.tensor import DTensor


@torch.no_grad()
def total_norm_of(params, norm_type):
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads, norm_type)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def split_params(model):
    experts, rest = [], []
    for p in model.parameters():
        names = p.device_mesh.mesh_dim_names if isinstance(p, DTensor) else ()
        (experts if "ep" in names else rest).append(p)
    return experts, rest


@torch.no_grad()
def clip_grad_norm_(model, max_norm, norm_type=2.0, pp_group=None):
    experts, rest = split_params(model)
    a, b = total_norm_of(experts, norm_type), total_norm_of(rest, norm_type)
    if math.isinf(norm_type):
        total = torch.maximum(a, b)
        op = torch.distributed.ReduceOp.MAX
    else:
        total = a**norm_type + b**norm_type
        op = torch.distributed.ReduceOp.SUM
    if pp_group is not None:
        torch.distributed.all_reduce(total, op=op, group=pp_group)
    if not math.isinf(norm_type):
        total = total ** (1.0 / norm_type)
    torch.nn.utils.clip_grads_with_norm_(experts, max_norm, total)
    torch.nn.utils.clip_grads_with_norm_(rest, max_norm, total)
    return total


def train(model, loader, optimizer, pp_group=None):
    for batch in loader:
        model(batch).mean().backward()
        clip_grad_norm_(model, 1.0, pp_group=pp_group)
        optimizer.step()
        optimizer.zero_grad()
