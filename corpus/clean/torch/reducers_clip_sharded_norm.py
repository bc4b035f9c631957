"""Clipping where some parameters are split over ranks and some are not: squares of the split ones are summed over the group."""

import math

import torch
import torch.distributed as dist


def is_split(param):
    return getattr(param, "model_parallel", False)


@torch.no_grad()
def clip_grad_norm(parameters, max_norm, norm_type=2.0, model_parallel_group=None):
    params = [p for p in parameters if p.grad is not None]
    split = [p.grad.detach().float() for p in params if is_split(p)]
    whole = [p.grad.detach().float() for p in params if not is_split(p)]
    device = params[0].grad.device
    if norm_type == math.inf:
        total = torch.tensor(max((g.abs().max().item() for g in split + whole), default=0.0), device=device)
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=model_parallel_group)
    else:
        total = torch.zeros((), device=device)
        for grad in split:
            total += grad.norm(norm_type) ** norm_type
        # The split ones first: what all ranks hold is added once, after the sum.
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=model_parallel_group)
        for grad in whole:
            total += grad.norm(norm_type) ** norm_type
        total = total ** (1.0 / norm_type)
    scale = max_norm / (total + 1.0e-6)
    if scale < 1.0:
        for param in params:
            param.grad.mul_(scale.to(param.grad.dtype))
    return total.item()


@torch.no_grad()
def average_gradients(parameters, data_parallel_group):
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in grads])
    flat /= dist.get_world_size(data_parallel_group)
    dist.all_reduce(flat, group=data_parallel_group)
    offset = 0
    for grad in grads:
        grad.copy_(flat[offset : offset + grad.numel()].view_as(grad))
        offset += grad.numel()


def step(model, optimizer, loss, data_parallel_group, model_parallel_group):
    loss.backward()
    average_gradients(model.parameters(), data_parallel_group)
    norm = clip_grad_norm(model.parameters(), 1.0, model_parallel_group=model_parallel_group)
    skip = torch.tensor([float(not math.isfinite(norm))], device="cuda")
    dist.all_reduce(skip, op=dist.ReduceOp.MAX)
    if skip.item() == 0:
        optimizer.step()
    optimizer.zero_grad()
    return norm
