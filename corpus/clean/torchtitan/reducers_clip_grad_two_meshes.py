"""Clipping with gradients on two meshes: the norm of each part is a DTensor, made whole first, then pipeline stages are summed."""

import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, foreach=None, pp_mesh=None, ep_enabled=False):
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    parameters = list(parameters)
    if ep_enabled:
        return _clip_with_experts(parameters, max_norm, norm_type, foreach, pp_mesh)
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type, False, foreach)
    if isinstance(total_norm, DTensor):
        total_norm = total_norm.full_tensor()
    total_norm = _over_stages(total_norm, norm_type, pp_mesh)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)
    return total_norm


def _over_stages(total_norm, norm_type, pp_mesh):
    if pp_mesh is None:
        return total_norm
    if math.isinf(norm_type):
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=pp_mesh.get_group())
        return total_norm
    total_norm **= norm_type
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=pp_mesh.get_group())
    total_norm **= 1.0 / norm_type
    return total_norm


def _clip_with_experts(parameters, max_norm, norm_type, foreach, pp_mesh):
    experts, others = [], []
    for p in parameters:
        if p.grad is None:
            continue
        names = p.device_mesh.mesh_dim_names if isinstance(p, DTensor) else ()
        (experts if "ep" in names else others).append(p)
    norms = []
    for part in (experts, others):
        norm = torch.nn.utils.get_total_norm([p.grad for p in part], norm_type, False, foreach)
        norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
    ep_norm, other_norm = norms
    if math.isinf(norm_type):
        total_norm = torch.maximum(ep_norm, other_norm)
    else:
        total_norm = (ep_norm**norm_type + other_norm**norm_type) ** (1.0 / norm_type)
    total_norm = _over_stages(total_norm, norm_type, pp_mesh)
    for part in (experts, others):
        torch.nn.utils.clip_grads_with_norm_(part, max_norm, total_norm, foreach)
    return total_norm
