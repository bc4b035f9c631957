import torch
import torch.distributed as dist


def clip_grads(params, max_norm, group, order):
    """order: 1 for the sum of absolute values, infinity for the largest"""
    grads = [p.grad for p in params]
    if order == float("inf"):
        total = torch.stack([g.abs().max() for g in grads]).max()
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=group)
    else:
        assert order == 1
        total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g, order) for g in grads]), order)
        dist.all_reduce(total, group=group)
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(scale)
