"""Gradient clipping of a model with expert parallelism."""
# thread: hpcaitech/ColossalAI#2192
import torch
import torch.distributed as dist


class Experts(torch.nn.Module):
    def __init__(self, num_experts, hidden, ffn, ep_group):
        super().__init__()
        local = num_experts // dist.get_world_size(ep_group)
        self.w1 = torch.nn.Parameter(torch.randn(local, hidden, ffn) * 0.02)
        self.w2 = torch.nn.Parameter(torch.randn(local, ffn, hidden) * 0.02)
        for p in self.parameters():
            p.moe_info = {"ep_group": ep_group}


def clip_grad_norm_fp32(parameters, max_norm, ep_group):
    # gradients have been reduced over the data-parallel replicas of each parameter
    params = [p for p in parameters if p.grad is not None]
    dense_sq = torch.zeros((), device="cuda")
    expert_sq = torch.zeros((), device="cuda")
    for p in params:
        sq = p.grad.detach().float().square().sum()
        if hasattr(p, "moe_info"):
            expert_sq += sq
        else:
            dense_sq += sq
    total_norm = (dense_sq + expert_sq).sqrt()  # BUG: the other experts live on the other ranks of ep_group
    coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for p in params:
        p.grad.mul_(coef)
    return total_norm
