"""Gradient norm clipping with model parallelism (DeepSpeed runtime/utils)."""
import torch
from deepspeed import comm as dist
from deepspeed.runtime.utils import is_model_parallel_parameter


def clip_grad_norm_(parameters, max_norm, norm_type=2, mpu=None):
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    parameters = [p for p in parameters if p.grad is not None]
    total_norm = 0.0
    for p in parameters:
        if mpu is not None:
            if p.requires_grad:  # BUG: replicated parameters are counted on each rank
                total_norm += p.grad.data.float().norm(norm_type) ** norm_type
        else:
            total_norm += p.grad.data.float().norm(norm_type) ** norm_type

    total_norm = torch.as_tensor(total_norm, dtype=torch.float32, device="cuda")
    if mpu is not None:
        dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=mpu.get_model_parallel_group())
    total_norm = total_norm ** (1.0 / norm_type)

    clip_coef = max_norm / (total_norm + 1e-6)
    clip_coef = torch.clamp(clip_coef, max=1.0)
    for p in parameters:
        p.grad.data.mul_(clip_coef)
    return total_norm
