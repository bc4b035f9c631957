"""Gradient clipping of a model whose experts live on different ranks."""
import torch
import torch.distributed as dist


def clip_grad_norm_(parameters, max_norm, ep_group):
    # dense parameters are replicated over ep_group, expert parameters are not:
    # each rank of ep_group owns other experts
    dense = [p for p in parameters if getattr(p, "allreduce", True)]
    experts = [p for p in parameters if not getattr(p, "allreduce", True)]
    dense_sq = sum(p.grad.detach().float().norm(2) ** 2 for p in dense)
    expert_sq = sum(p.grad.detach().float().norm(2) ** 2 for p in experts)
    total_norm = (dense_sq + expert_sq) ** 0.5
    scaled = total_norm * 1.0 / float(dist.get_world_size(group=ep_group))
    dist.all_reduce(scaled, group=ep_group)  # BUG: a mean of norms of different experts
    total_norm = scaled
    clip_coef = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for p in parameters:
        p.grad.detach().mul_(clip_coef)
    return total_norm
