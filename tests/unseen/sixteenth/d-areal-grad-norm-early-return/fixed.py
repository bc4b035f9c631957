# inclusionAI/AReaL pull request 1139 (commit 595a3c4a)
"""Global gradient norm of an FSDP engine with LoRA."""
import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(t):
    return t.to_local() if isinstance(t, DTensor) else t


def get_main_grads_for_grad_norm(params, tensor_parallel_rank):
    """Gradients this rank contributes: shards, and replicated ones on the first tensor-parallel rank."""
    return [
        p.grad
        for p in params
        if p.grad is not None and (tensor_parallel_rank == 0 or not getattr(p, "tp_replicated", False))
    ]


@torch.no_grad()
def get_grad_norm_fp32(grads_for_norm, data_parallel_group=None, model_parallel_group=None, norm_type=2.0):
    grads_for_norm = [to_local_if_dtensor(grad).detach() for grad in grads_for_norm]
    norm_type = float(norm_type)
    total_norm = torch.tensor(0.0, dtype=torch.float, device="cuda")

    if norm_type == math.inf:
        op = dist.ReduceOp.MAX
        for grad in grads_for_norm:
            if grad.numel() > 0:
                total_norm = torch.maximum(total_norm, grad.abs().max().float())
    else:
        op = dist.ReduceOp.SUM
        for grad in grads_for_norm:
            total_norm += torch.linalg.vector_norm(grad.float(), norm_type) ** norm_type

    if data_parallel_group is not None:
        dist.all_reduce(total_norm, op=op, group=data_parallel_group)
    if model_parallel_group is not None:
        dist.all_reduce(total_norm, op=op, group=model_parallel_group)
    total_norm = total_norm.item()
    return total_norm if norm_type == math.inf else total_norm ** (1.0 / norm_type)


def clip_grad_by_total_norm_fp32(params, max_norm, total_norm):
    clip_coeff = max_norm / (total_norm + 1.0e-6)
    if clip_coeff < 1.0:
        for p in params:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(clip_coeff)


def clip_grad_norm(params, max_norm, shard_group, tp_group, tp_rank):
    params = list(params)
    grads = get_main_grads_for_grad_norm(params, tp_rank)
    total_norm = get_grad_norm_fp32(grads, shard_group, tp_group)
    clip_grad_by_total_norm_fp32(params, max_norm, total_norm)
    return total_norm
