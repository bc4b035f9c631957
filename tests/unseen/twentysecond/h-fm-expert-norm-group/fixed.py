"""Gradient clipping with experts spread over the data-parallel ranks (laekov/fastmoe#169)."""
import torch
import torch.distributed as dist
from megatron import mpu


def clip_grad_norm(parameters, max_norm):
    dense = torch.zeros(1, device="cuda")
    expert = torch.zeros(1, device="cuda")
    grads = []
    for p in parameters:
        if p.grad is None:
            continue
        grads.append(p.grad)
        sq = p.grad.float().norm() ** 2
        if getattr(p, "dp_comm", "dp") == "none":
            expert += sq  # other experts live on the other data-parallel ranks, each sliced over MP
        elif getattr(p, "tensor_model_parallel", False) or mpu.get_model_parallel_rank() == 0:
            dense += sq
    dist.all_reduce(expert, group=mpu.get_data_parallel_group())
    total = dense + expert
    dist.all_reduce(total, group=mpu.get_model_parallel_group())
    total_norm = total.sqrt()
    coeff = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(coeff)
    return total_norm
