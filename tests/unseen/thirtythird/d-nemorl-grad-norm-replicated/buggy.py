"""Global gradient norm of a DTensor model on a (dp_cp, tp) mesh.

Source: https://github.com/NVIDIA-NeMo/RL/pull/3788
Wrong: the squares of all parameters are summed over TP; gradients replicated on TP (norms, biases,
q/k norms) are counted tp_size times and clipping is too strong.
Repair: sum over TP only what is sharded there.
"""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard


def to_local_if_dtensor(t):
    return t.to_local() if isinstance(t, DTensor) else t


def is_sharded_on(t, dim_name):
    if not isinstance(t, DTensor) or dim_name not in (t.device_mesh.mesh_dim_names or ()):
        return False
    return isinstance(t.placements[t.device_mesh.mesh_dim_names.index(dim_name)], Shard)


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group, norm_type=2.0, dtype=torch.float32):
    grads = [p.grad for p in parameters if p.grad is not None]
    device = to_local_if_dtensor(grads[0]).device
    total = torch.zeros((), device=device, dtype=dtype)
    for g in grads:
        # all of them are sharded over dp_cp
        total += torch.linalg.vector_norm(to_local_if_dtensor(g), norm_type, dtype=dtype) ** norm_type
    dist.all_reduce(total, group=dp_cp_group)
    dist.all_reduce(total, group=tp_group)  # BUG: TP copies are counted tp_size times
    return total.item() ** (1.0 / norm_type)


def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    coeff = max_grad_norm / (total_norm + 1.0e-6)
    if coeff < 1.0:
        for p in parameters:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(coeff)
