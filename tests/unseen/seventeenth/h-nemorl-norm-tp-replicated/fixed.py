# Source: NVIDIA-NeMo/RL PR #3788, nemo_rl/models/dtensor/parallelize.py (get_grad_norm)
# The squared local norms of all gradients are summed over the TP group. Parameters that are
# replicated on TP (norms, biases, routers) have the same gradient on each TP rank and are counted
# tp_size times; clipping then scales too strongly.
# Repair: sum over TP only what is sharded on TP.
from typing import Union

import torch
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(tensor: Union[torch.Tensor, DTensor]) -> torch.Tensor:
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def is_sharded_on(tensor: Union[torch.Tensor, DTensor], mesh_dim_name: str) -> bool:
    if not isinstance(tensor, DTensor):
        return False
    names = tensor.device_mesh.mesh_dim_names or ()
    return mesh_dim_name in names and tensor.placements[names.index(mesh_dim_name)].is_shard()


@torch.no_grad()
def get_grad_norm(
    parameters: list[Union[torch.Tensor, DTensor]],
    dp_cp_group: torch.distributed.ProcessGroup,
    tp_group: torch.distributed.ProcessGroup,
    norm_type: Union[int, float] = 2,
    dtype: torch.dtype = torch.float32,
) -> float:
    """Parameters: sharded over dp_cp by FSDP2, and over tp as far as the TP plan names them."""
    norm_type = float(norm_type)
    total_norm_cuda = torch.tensor(0.0, dtype=dtype, device="cuda")
    replicated_norm_cuda = torch.tensor(0.0, dtype=dtype, device="cuda")
    for p in parameters:
        if p.grad is None:
            continue
        grad_norm = torch.linalg.vector_norm(to_local_if_dtensor(p.grad.detach()), ord=norm_type, dtype=dtype)
        if is_sharded_on(p, "tp"):
            total_norm_cuda += torch.pow(grad_norm, norm_type)
        else:
            replicated_norm_cuda += torch.pow(grad_norm, norm_type)

    # Sum across all data-parallel GPUs if using FSDP and then all model-parallel GPUs.
    torch.distributed.all_reduce(
        total_norm_cuda, op=torch.distributed.ReduceOp.SUM, group=dp_cp_group
    )
    torch.distributed.all_reduce(
        replicated_norm_cuda, op=torch.distributed.ReduceOp.SUM, group=dp_cp_group
    )
    torch.distributed.all_reduce(
        total_norm_cuda, op=torch.distributed.ReduceOp.SUM, group=tp_group
    )
    total_norm_cuda += replicated_norm_cuda
    return float(total_norm_cuda.item() ** (1.0 / norm_type))


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm: float, total_norm: float):
    grads = [to_local_if_dtensor(p.grad.detach()) for p in parameters if p.grad is not None]
    clip_coeff = max_grad_norm / (total_norm + 1.0e-6)
    if clip_coeff < 1.0:
        for g in grads:
            g.mul_(clip_coeff)
