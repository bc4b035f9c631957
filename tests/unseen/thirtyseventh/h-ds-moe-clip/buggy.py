# thread: https://github.com/deepspeedai/DeepSpeed/pull/8478
"""fp32 gradient clipping of a model with expert-parallel layers."""
import torch
import torch.distributed as dist


class Groups:
    """dp covers every rank; experts live on ep and are replicated on expert_dp."""

    def __init__(self, dp, ep, expert_dp):
        self.dp, self.ep, self.expert_dp = dp, ep, expert_dp


def is_moe_param(p):
    return not getattr(p, "allreduce", True)


@torch.no_grad()
def allreduce_gradients(model, groups):
    dp_size = dist.get_world_size(groups.dp)
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        p.grad.div_(dp_size)
        dist.all_reduce(p.grad, group=groups.expert_dp if is_moe_param(p) else groups.dp)


@torch.no_grad()
def clip_grad_norm_(model, max_norm, groups):
    params = [p for p in model.parameters() if p.grad is not None]
    device = params[0].device
    dense_sq = torch.zeros((), device=device)
    expert_sq = torch.zeros((), device=device)
    for p in params:
        sq = p.grad.float().norm() ** 2
        if is_moe_param(p):
            expert_sq += sq
        else:
            dense_sq += sq

    total_norm = (dense_sq + expert_sq).sqrt() / dist.get_world_size(groups.dp)
    dist.all_reduce(total_norm, group=groups.dp)  # BUG

    clip_coef = max_norm / (total_norm + 1e-6)
    if clip_coef < 1:
        for p in params:
            p.grad.mul_(clip_coef)
    return total_norm.item()


class Engine:
    def __init__(self, model, optimizer, groups, clip, gas):
        self.model, self.optimizer, self.groups = model, optimizer, groups
        self.clip, self.gas = clip, gas
        self.micro_steps = 0

    def is_gradient_accumulation_boundary(self):
        return (self.micro_steps + 1) % self.gas == 0

    def backward(self, loss):
        (loss / self.gas).backward()
        if self.is_gradient_accumulation_boundary():
            allreduce_gradients(self.model, self.groups)

    def step(self):
        if self.is_gradient_accumulation_boundary():
            if self.clip > 0:
                self.grad_norm = clip_grad_norm_(self.model, self.clip, self.groups)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)
        self.micro_steps += 1
