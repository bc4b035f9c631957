"""Squares of copies are divided by their number before the sum over tensor-parallel ranks."""
import torch
import torch.distributed as dist


def sharded(p):
    return getattr(p, "tensor_model_parallel", False)


def grad_norm(params, tp_group):
    size = dist.get_world_size(tp_group)
    split = torch.zeros((), device="cuda")
    whole = torch.zeros((), device="cuda")
    for p in params:
        if p.grad is None:
            continue
        square = p.grad.float().pow(2).sum()
        if sharded(p):
            split += square
        else:
            whole += square
    total = split + whole / size
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()


def grad_norm_other_order(params, tp_group):
    split = sum(p.grad.pow(2).sum() for p in params if sharded(p))
    dist.all_reduce(split, group=tp_group)
    return (split + sum(p.grad.pow(2).sum() for p in params if not sharded(p))).sqrt()


def clip(params, largest, tp_group):
    params = list(params)
    norm = grad_norm(params, tp_group)
    factor = (largest / (norm + 1e-6)).clamp(max=1.0)
    for p in params:
        if p.grad is not None:
            p.grad.mul_(factor)
    return norm
