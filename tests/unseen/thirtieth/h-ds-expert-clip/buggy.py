"""FP32 training engine for MoE models: gradient exchange and clipping."""
import torch
import torch.distributed as dist

_DATA_PARALLEL_GROUP = None
_EXPERT_PARALLEL_GROUP = None
_EXPERT_DATA_PARALLEL_GROUP = None


def initialize_groups(ep_size):
    """Experts are split over ep_size neighbouring ranks and replicated over the others."""
    global _DATA_PARALLEL_GROUP, _EXPERT_PARALLEL_GROUP, _EXPERT_DATA_PARALLEL_GROUP
    world, rank = dist.get_world_size(), dist.get_rank()
    _DATA_PARALLEL_GROUP = dist.new_group(list(range(world)))
    for i in range(world // ep_size):
        ranks = list(range(i * ep_size, (i + 1) * ep_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            _EXPERT_PARALLEL_GROUP = group
    for i in range(ep_size):
        ranks = list(range(i, world, ep_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            _EXPERT_DATA_PARALLEL_GROUP = group


def is_moe_param(param):
    return hasattr(param, "allreduce") and not param.allreduce


def clip_grad_norm_(parameters, max_norm):
    parameters = [p for p in parameters if p.grad is not None]
    device = parameters[0].grad.device
    shared_sq = torch.zeros((), device=device)
    expert_sq = torch.zeros((), device=device)
    for p in parameters:
        sq = p.grad.detach().float().norm(2) ** 2
        if is_moe_param(p):
            expert_sq += sq
        else:
            shared_sq += sq

    total_norm = (shared_sq + expert_sq) ** 0.5
    scaled_norm = total_norm / dist.get_world_size(_DATA_PARALLEL_GROUP)
    dist.all_reduce(scaled_norm, group=_DATA_PARALLEL_GROUP)  # BUG
    total_norm = scaled_norm

    clip_coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for p in parameters:
        p.grad.detach().mul_(clip_coef)
    return total_norm


class MoEEngine:
    def __init__(self, model, optimizer, ep_size, gradient_clipping=1.0):
        initialize_groups(ep_size)
        self.module = model
        self.optimizer = optimizer
        self.gradient_clipping = gradient_clipping
        self.dp_world_size = dist.get_world_size(_DATA_PARALLEL_GROUP)
        self._broadcast_model()

    def _broadcast_model(self):
        for p in self.module.parameters():
            group = _EXPERT_DATA_PARALLEL_GROUP if is_moe_param(p) else _DATA_PARALLEL_GROUP
            src = dist.get_global_rank(group, 0)
            dist.broadcast(p.data, src, group=group)

    def allreduce_gradients(self):
        for p in self.module.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            group = _EXPERT_DATA_PARALLEL_GROUP if is_moe_param(p) else _DATA_PARALLEL_GROUP
            p.grad.div_(self.dp_world_size)
            dist.all_reduce(p.grad, group=group)

    def backward(self, loss):
        loss.backward()
        self.allreduce_gradients()

    def step(self):
        self.global_norm = clip_grad_norm_(self.module.parameters(), self.gradient_clipping)
        self.optimizer.step()
        self.optimizer.zero_grad()
