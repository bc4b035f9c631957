"""Global gradient norm of a DTensor policy (FSDP over dp_cp, tensor parallel over tp).

Source: NVIDIA-NeMo/RL PR #3788.
"""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(t):
    return t.to_local() if isinstance(t, DTensor) else t


def is_split_over_tp(t):
    if not isinstance(t, DTensor):
        return False
    names = t.device_mesh.mesh_dim_names
    return any(name == "tp" and p.is_shard() for name, p in zip(names, t.placements))


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group, norm_type=2.0, dtype=torch.float32):
    # q/k/v/o and mlp weights are split over tp; norms and the router are replicated over tp
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.zeros(1, dtype=dtype, device="cuda")
    replicated_norm = torch.zeros(1, dtype=dtype, device="cuda")
    for grad in grads:
        local = to_local_if_dtensor(grad)
        powered = torch.linalg.vector_norm(local, ord=norm_type, dtype=dtype) ** norm_type
        if is_split_over_tp(grad):
            total_norm += powered
        else:
            replicated_norm += powered
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=tp_group)
    total_norm += replicated_norm
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=dp_cp_group)
    return total_norm.item() ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    clip_coeff = max_grad_norm / (total_norm + 1.0e-6)
    if clip_coeff < 1.0:
        for p in parameters:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(clip_coeff)


def optimizer_step(model, optimizer, dp_cp_group, tp_group, max_grad_norm):
    parameters = list(model.parameters())
    grad_norm = get_grad_norm(parameters, dp_cp_group, tp_group)
    clip_grad_by_total_norm_(parameters, max_grad_norm, grad_norm)
    optimizer.step()
    return grad_norm
