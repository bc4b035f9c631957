"""Global gradient norm of the FSDP engine.

Reduced from inclusionAI/AReaL 595a3c4a3c (Fix grad norm hang when LoRA frozen ranks have no
gradients, #1139).
"""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def get_grad_norm_fp32(parameters, data_parallel_group=None, model_parallel_group=None, norm_type=2.0):
    grads_for_norm = [p.grad for p in parameters if p.grad is not None]
    grads_for_norm = [to_local_if_dtensor(grad).detach() for grad in grads_for_norm]

    if not grads_for_norm:
        return 0.0  # BUG: with LoRA a pipeline stage may be frozen, its peers wait below

    norm_type = float(norm_type)
    total_norm = torch.zeros((), dtype=torch.float, device="cuda")
    for grad in grads_for_norm:
        total_norm += torch.norm(grad.float(), norm_type) ** norm_type

    if data_parallel_group:
        dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=data_parallel_group)
    if model_parallel_group is not None:
        dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=model_parallel_group)
    return total_norm.item() ** (1.0 / norm_type)
