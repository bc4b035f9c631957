"""Gradient norm and clipping for parameters sharded by FSDP2 (dp_cp) and by a tensor-parallel plan (tp)."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(t):
    return t.to_local() if isinstance(t, DTensor) else t


def is_sharded_over(t, mesh_dim_name):
    if not isinstance(t, DTensor) or mesh_dim_name not in (t.device_mesh.mesh_dim_names or ()):
        return False
    return t.placements[t.device_mesh.mesh_dim_names.index(mesh_dim_name)].is_shard()


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group, norm_type=2.0, dtype=torch.float32):
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.zeros(1, dtype=dtype, device="cuda")
    tp_norm = torch.zeros(1, dtype=dtype, device="cuda")
    for grad in grads:
        local = to_local_if_dtensor(grad.detach())
        term = torch.linalg.vector_norm(local, ord=norm_type, dtype=dtype) ** norm_type
        if is_sharded_over(grad, "tp"):
            tp_norm += term
        else:
            total_norm += term
    dist.all_reduce(tp_norm, op=dist.ReduceOp.SUM, group=tp_group)
    total_norm += tp_norm
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=dp_cp_group)
    return total_norm.item() ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    clip_coeff = min(max_grad_norm / (total_norm + 1e-6), 1.0)
    for p in parameters:
        if p.grad is not None:
            to_local_if_dtensor(p.grad.detach()).mul_(clip_coeff)


def optimizer_step(model, optimizer, dp_cp_group, tp_group, max_grad_norm):
    parameters = [p for p in model.parameters() if p.requires_grad]
    norm = get_grad_norm(parameters, dp_cp_group, tp_group)
    clip_grad_by_total_norm_(parameters, max_grad_norm, norm)
    optimizer.step()
    optimizer.zero_grad()
    return norm
