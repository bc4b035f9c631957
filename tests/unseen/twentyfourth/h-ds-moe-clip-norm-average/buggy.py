"""Gradient clipping of the fp32 optimizer with expert parallelism.

After deepspeedai/DeepSpeed issue #8475 and PR #8478 (deepspeed/runtime/utils.py `clip_grad_norm_`).
"""
import math

import torch
import torch.distributed as dist


def is_moe_param(param):
    return hasattr(param, "allreduce") and not param.allreduce


def _accumulate_norm(grads, norm_type, device):
    """Max for the infinity norm, else the sum of powers."""
    total = torch.zeros((), dtype=torch.float32, device=device)
    for g in grads:
        if math.isinf(norm_type):
            total = torch.maximum(total, g.detach().float().abs().max())
        else:
            total = total + g.detach().float().norm(norm_type) ** norm_type
    return total


def clip_grad_norm_(parameters, max_norm, dp_group, ep_group, norm_type=2.0):
    """Clip after the gradients were reduced over their data-parallel groups.

    Dense parameters are equal on the ranks of dp_group. Each rank of ep_group holds its own
    experts, and dp_group consists of one or more copies of ep_group.
    """
    parameters = [p for p in parameters if p.grad is not None]
    device = torch.device("cuda", torch.cuda.current_device())
    dense = _accumulate_norm((p.grad for p in parameters if not is_moe_param(p)), norm_type, device)
    expert = _accumulate_norm((p.grad for p in parameters if is_moe_param(p)), norm_type, device)
    if math.isinf(norm_type):
        total_norm = torch.maximum(dense, expert)
        dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=dp_group)
    else:
        total_norm = (dense + expert) ** (1.0 / norm_type)
        total_norm = total_norm / dist.get_world_size(dp_group)
        dist.all_reduce(total_norm, group=dp_group)  # BUG: averages norms over different experts

    clip_coef = max_norm / (total_norm + 1e-6)
    if clip_coef < 1:
        for p in parameters:
            p.grad.detach().mul_(clip_coef)
    return total_norm


class Engine:
    def __init__(self, module, optimizer, dp_group, ep_group, expert_dp_group, max_norm):
        self.module, self.optimizer, self.max_norm = module, optimizer, max_norm
        self.dp_group, self.ep_group, self.expert_dp_group = dp_group, ep_group, expert_dp_group

    def allreduce_gradients(self):
        dp_world_size = dist.get_world_size(self.dp_group)
        for p in self.module.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.div_(dp_world_size)
            group = self.expert_dp_group if is_moe_param(p) else self.dp_group
            dist.all_reduce(p.grad, group=group)

    def step(self):
        self.allreduce_gradients()
        norm = clip_grad_norm_(self.module.parameters(), self.max_norm, self.dp_group, self.ep_group)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm
