# Source: inclusionAI/AReaL commit 595a3c4a3 (PR #1139), areal/engine/fsdp_utils/grad.py
# A rank without gradients (all its parameters are frozen outside LoRA) returns before the
# all_reduce of the norm; the ranks that have gradients hang in it.
# Repair: such a rank takes part with a zero.
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor

from areal.infra.platforms import current_platform


def to_local_if_dtensor(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def get_grad_norm_fp32(
    grads_for_norm: list[Tensor],
    data_parallel_group: ProcessGroup | None = None,
    model_parallel_group: ProcessGroup | None = None,
    norm_type: float = 2.0,
) -> float:
    grads_for_norm = [to_local_if_dtensor(grad).detach() for grad in grads_for_norm]
    norm_type = float(norm_type)
    device = current_platform.current_device()

    if not grads_for_norm:
        total_norm_cuda = torch.tensor(0.0, dtype=torch.float, device=device)
        reduce_op = dist.ReduceOp.MAX if norm_type == torch.inf else dist.ReduceOp.SUM
    elif norm_type == torch.inf:
        norms = [grad.abs().max() for grad in grads_for_norm]
        total_norm_cuda = torch.max(torch.stack(norms)).float().to(device)
        reduce_op = dist.ReduceOp.MAX
    else:
        grad_norms = [torch.norm(grad, norm_type) for grad in grads_for_norm]
        total_norm_cuda = torch.stack(grad_norms).float().pow(norm_type).sum().to(device)
        reduce_op = dist.ReduceOp.SUM

    if data_parallel_group is not None:
        dist.all_reduce(total_norm_cuda, op=reduce_op, group=data_parallel_group)
    if model_parallel_group is not None:
        dist.all_reduce(total_norm_cuda, op=reduce_op, group=model_parallel_group)
    total_norm = float(total_norm_cuda.item())
    return total_norm if norm_type == torch.inf else total_norm ** (1.0 / norm_type)


def fsdp2_clip_grad_norm(parameters, dp_group, tp_group, max_norm: float) -> float:
    # LoRA: on some ranks every shard of a trainable parameter may be empty
    params = [p for p in parameters if p.grad is not None and to_local_if_dtensor(p.grad).numel() > 0]
    total_norm = get_grad_norm_fp32([p.grad for p in params], dp_group, tp_group)
    clip_coeff = max_norm / (total_norm + 1.0e-6)
    if clip_coeff < 1.0:
        for p in params:
            p.grad.mul_(clip_coeff)
    return total_norm
