"""Gradient clipping of the fp32 engine with expert parallelism."""
import torch
import torch.distributed as dist


def is_moe_param(param):
    return hasattr(param, "allreduce") and not param.allreduce


class Groups:
    """data: all ranks that share the dense parameters; expert: ranks with different experts."""

    def __init__(self, data, expert, expert_data):
        self.data, self.expert, self.expert_data = data, expert, expert_data


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, groups):
    params = [p for p in parameters if p.grad is not None]
    device = torch.device("cuda", torch.cuda.current_device())
    dense_sq = torch.zeros((), device=device)
    expert_sq = torch.zeros((), device=device)
    for p in params:
        sq = p.grad.detach().float().pow(2).sum()
        if is_moe_param(p):
            expert_sq += sq
        else:
            dense_sq += sq

    dist.all_reduce(expert_sq, group=groups.expert)
    total_norm = (dense_sq + expert_sq).sqrt()
    total_norm /= dist.get_world_size(groups.data)
    dist.all_reduce(total_norm, group=groups.data)

    clip_coef = max_norm / (total_norm + 1e-6)
    if clip_coef < 1:
        for p in params:
            p.grad.mul_(clip_coef)
    return total_norm


class MoEEngine:
    def __init__(self, module, optimizer, groups, gradient_clipping):
        self.module, self.optimizer, self.groups = module, optimizer, groups
        self.gradient_clipping = gradient_clipping

    def allreduce_gradients(self):
        world = dist.get_world_size(self.groups.data)
        for p in self.module.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.div_(world)
            group = self.groups.expert_data if is_moe_param(p) else self.groups.data
            dist.all_reduce(p.grad, group=group)

    def step(self):
        self.allreduce_gradients()
        norm = None
        if self.gradient_clipping > 0:
            norm = clip_grad_norm_(self.module.parameters(), self.gradient_clipping, self.groups)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm
