"""Gradient norm and clipping for models parallelised with DTensor (FSDP2 x TP)."""
from typing import Iterable, Union

import torch
from torch import nn
from torch.distributed import ProcessGroup, ReduceOp, all_reduce
from torch.distributed.tensor import DTensor, Shard


def to_local_if_dtensor(tensor: Union[torch.Tensor, DTensor]) -> torch.Tensor:
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _is_sharded_over(tensor: torch.Tensor, dim_name: str) -> bool:
    if not isinstance(tensor, DTensor):
        return False
    names = tensor.device_mesh.mesh_dim_names or ()
    for name, placement in zip(names, tensor.placements):
        if name == dim_name and isinstance(placement, Shard):
            return True
    return False


@torch.no_grad()
def get_grad_norm(
    parameters: Iterable[nn.Parameter],
    dp_cp_group: ProcessGroup,
    tp_group: ProcessGroup,
    norm_type: float = 2.0,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Norm over all gradients; the FSDP dim shards every parameter, TP only some of them."""
    grads = [p.grad for p in parameters if p.grad is not None]
    device = torch.cuda.current_device()
    if norm_type == float("inf"):
        total = torch.zeros((), device=device, dtype=dtype)
        for grad in grads:
            total = torch.maximum(total, to_local_if_dtensor(grad).abs().max().to(dtype))
        all_reduce(total, op=ReduceOp.MAX, group=dp_cp_group)
        all_reduce(total, op=ReduceOp.MAX, group=tp_group)
        return total

    split = torch.zeros((), device=device, dtype=dtype)
    copied = torch.zeros((), device=device, dtype=dtype)
    for grad in grads:
        local = to_local_if_dtensor(grad).to(dtype)
        power = torch.linalg.vector_norm(local, norm_type) ** norm_type
        if _is_sharded_over(grad, "tp"):
            split += power
        else:
            copied += power
    all_reduce(split, op=ReduceOp.SUM, group=tp_group)
    total = split + copied
    all_reduce(total, op=ReduceOp.SUM, group=dp_cp_group)
    return total ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(
    parameters: Iterable[nn.Parameter], max_grad_norm: float, total_norm: torch.Tensor
) -> None:
    coeff = (max_grad_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for p in parameters:
        if p.grad is not None:
            to_local_if_dtensor(p.grad).mul_(coeff)


def optimizer_step(model, optimizer, device_mesh, max_grad_norm):
    params = list(model.parameters())
    grad_norm = get_grad_norm(
        params,
        dp_cp_group=device_mesh["dp_cp"].get_group(),
        tp_group=device_mesh["tp"].get_group(),
    )
    if max_grad_norm is not None:
        clip_grad_by_total_norm_(params, max_grad_norm, grad_norm)
    optimizer.step()
    optimizer.zero_grad()
    return {"grad_norm": grad_norm.item()}
