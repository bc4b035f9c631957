"""Gradient norm of the low-level ZeRO optimizer with tensor parallelism.
hpcaitech/ColossalAI #2521, "[zero] fix gradient clipping in hybrid parallelism".
"""
import torch
import torch.distributed as dist
from colossalai.utils import is_model_parallel_parameter


def compute_norm(gradients, params, dp_group, mp_group, norm_type=2):
    """gradients: the part of each gradient owned by this ZeRO rank."""
    mp_rank = 0 if mp_group is None else dist.get_rank(mp_group)
    norm_type = float(norm_type)

    if norm_type == float("inf"):
        total_norm = max(g.data.abs().max() for g in gradients)
        total_norm_cuda = torch.cuda.FloatTensor([float(total_norm)])
        dist.all_reduce(total_norm_cuda, op=dist.ReduceOp.MAX, group=dp_group)
        if mp_group is not None:
            dist.all_reduce(total_norm_cuda, op=dist.ReduceOp.MAX, group=mp_group)
        return total_norm_cuda[0].item()

    total_norm = 0.0
    for g, p in zip(gradients, params):
        # replicated over the model-parallel ranks: count once
        if is_model_parallel_parameter(p) or mp_rank == 0:
            param_norm = g.data.double().norm(2)
            total_norm += param_norm.item() ** 2

    total_norm_cuda = torch.cuda.FloatTensor([float(total_norm)])
    dist.all_reduce(total_norm_cuda, op=dist.ReduceOp.SUM, group=dp_group)
    if mp_group is not None:
        dist.all_reduce(total_norm_cuda, op=dist.ReduceOp.SUM)  # BUG
    return total_norm_cuda[0].item() ** (1.0 / norm_type)


def unscale_and_clip_grads(gradients, total_norm, loss_scale, clip_grad_norm):
    combined_scale = loss_scale
    if clip_grad_norm > 0.0:
        clip = ((total_norm / loss_scale) + 1e-6) / clip_grad_norm
        if clip > 1:
            combined_scale = clip * loss_scale
    for grad in gradients:
        grad.data.mul_(1.0 / combined_scale)
