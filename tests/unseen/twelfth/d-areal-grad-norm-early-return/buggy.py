"""Global gradient norm for FSDP2 (+ tensor parallel) training."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(t):
    return t.to_local() if isinstance(t, DTensor) else t


def get_main_grads_for_grad_norm(params, tensor_parallel_rank):
    return [
        p.grad
        for p in params
        if p.grad is not None and (tensor_parallel_rank == 0 or not getattr(p, "tp_duplicate", False))
    ]


def get_grad_norm_fp32(grads_for_norm, data_parallel_group=None, model_parallel_group=None, norm_type=2.0):
    grads_for_norm = [to_local_if_dtensor(grad).detach() for grad in grads_for_norm]
    norm_type = float(norm_type)

    if not grads_for_norm:
        return 0.0  # BUG: ranks without gradients skip the collectives of their peers

    if norm_type == torch.inf:
        norms = [grad.abs().max() for grad in grads_for_norm]
        total_norm = torch.max(torch.stack(norms)).float()
        op = dist.ReduceOp.MAX
    else:
        norms = [torch.norm(grad.float(), norm_type) for grad in grads_for_norm]
        total_norm = torch.stack(norms).pow(norm_type).sum()
        op = dist.ReduceOp.SUM

    if data_parallel_group is not None:
        dist.all_reduce(total_norm, op=op, group=data_parallel_group)
    if model_parallel_group is not None:
        dist.all_reduce(total_norm, op=op, group=model_parallel_group)
    total_norm = total_norm.item()
    return total_norm if norm_type == torch.inf else total_norm ** (1.0 / norm_type)


def fsdp2_clip_grad_norm(params, max_norm, dp_group, mp_group, tp_rank):
    params = list(params)
    grads = get_main_grads_for_grad_norm(params, tp_rank)
    total_norm = get_grad_norm_fp32(grads, dp_group, mp_group)
    clip_coef = max_norm / (total_norm + 1e-6)
    if clip_coef < 1.0:
        for p in params:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(clip_coef)
    return total_norm
