"""Gradient norm and clipping of a DTensor policy. NVIDIA-NeMo/RL, pull request #3788."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(t):
    return t.to_local() if isinstance(t, DTensor) else t


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group, norm_type=2.0):
    # parameters: FSDP2 DTensors on a ("dp_cp", "tp") mesh, Shard(0) over dp_cp and, over tp,
    # Shard for the projections, Replicate for q_norm, k_norm and the router.
    # After backward a gradient has the placements of its parameter.
    sharded = torch.zeros((), device="cuda")
    total = torch.zeros((), device="cuda")
    for p in parameters:
        if p.grad is None:
            continue
        local = to_local_if_dtensor(p.grad).float()
        part = torch.linalg.vector_norm(local, norm_type) ** norm_type
        if p.placements[p.device_mesh.mesh_dim_names.index("tp")].is_shard():
            sharded += part
        else:
            total += part
    dist.all_reduce(sharded, group=tp_group)
    total += sharded
    dist.all_reduce(total, group=dp_cp_group)
    return total.item() ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    coeff = max_grad_norm / (total_norm + 1.0e-6)
    if coeff < 1.0:
        for p in parameters:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(coeff)


def finish_step(model, optimizer, device_mesh, max_grad_norm):
    params = [p for p in model.parameters() if p.requires_grad]
    norm = get_grad_norm(
        params, device_mesh["dp_cp"].get_group(), device_mesh["tp"].get_group()
    )
    clip_grad_by_total_norm_(params, max_grad_norm, norm)
    optimizer.step()
    return norm
