# Reduced from NeMo RL (NVIDIA-NeMo/RL pull request 3788, read), models/dtensor/parallelize.py.
# The tensor-parallel plan shards the projections; norms, biases and router weights stay replicated
# over tp and have the same gradient on each tp rank.
# What happens: each replicated gradient is counted tp_size times, clipping fires too early.
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group, norm_type=2.0, dtype=torch.float32):
    total_norm = torch.tensor(0.0, dtype=dtype, device="cuda")
    for p in parameters:
        if p.grad is not None:
            grad_norm = torch.linalg.vector_norm(to_local_if_dtensor(p.grad), ord=norm_type, dtype=dtype)
            total_norm += torch.pow(grad_norm, norm_type)

    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=dp_cp_group)
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=tp_group)  # BUG
    return total_norm.item() ** (1.0 / norm_type)


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    clip_coeff = max_grad_norm / (total_norm + 1e-6)
    if clip_coeff < 1.0:
        for p in parameters:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(clip_coeff)
