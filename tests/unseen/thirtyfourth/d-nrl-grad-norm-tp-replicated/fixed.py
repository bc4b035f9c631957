# NVIDIA-NeMo/RL, pull request 3788 - https://github.com/NVIDIA-NeMo/RL/pull/3788 (read)
# Squared norms are summed over the TP group for every parameter; norms, biases and routers are replicated
# over TP and are counted tp_size times. Clipping then uses a norm that is too large.
"""Gradient norm of a model sharded by FSDP2 (dp_cp) and DTensor tensor parallelism (tp)."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard


def to_local_if_dtensor(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def is_tp_sharded(param):
    if not isinstance(param, DTensor) or "tp" not in param.device_mesh.mesh_dim_names:
        return False
    tp_dim = param.device_mesh.mesh_dim_names.index("tp")
    return isinstance(param.placements[tp_dim], Shard)


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group, norm_type=2.0, dtype=torch.float32):
    total = torch.zeros((), dtype=dtype, device="cuda")
    for p in parameters:
        if p.grad is None:
            continue
        if not is_tp_sharded(p) and dist.get_rank(tp_group) != 0:
            continue
        grad = to_local_if_dtensor(p.grad.detach())
        total += torch.linalg.vector_norm(grad, ord=norm_type, dtype=dtype) ** norm_type
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=dp_cp_group)
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=tp_group)
    return total ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    coef = (max_grad_norm / (total_norm + 1.0e-6)).clamp(max=1.0)
    for p in parameters:
        if p.grad is not None:
            to_local_if_dtensor(p.grad).mul_(coef)
