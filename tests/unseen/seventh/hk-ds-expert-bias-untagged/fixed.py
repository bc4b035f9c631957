"""Expert parameters and their gradient reduction in a DeepSpeed style engine."""
import copy

import torch.nn as nn
from deepspeed import comm as dist


class Experts(nn.Module):
    """num_local_experts experts; every expert-parallel rank holds other ones."""

    def __init__(self, expert, num_local_experts, expert_group_name):
        super().__init__()
        self.deepspeed_experts = nn.ModuleList(copy.deepcopy(expert) for _ in range(num_local_experts))
        for expert in self.deepspeed_experts:
            for name, param in expert.named_parameters():
                if param.requires_grad:
                    param.allreduce = False
                    param.group_name = expert_group_name

    def forward(self, inputs):
        chunks = inputs.chunk(len(self.deepspeed_experts), dim=1)
        return [expert(c) for expert, c in zip(self.deepspeed_experts, chunks)]


def make_ffn(hidden, ffn):
    return nn.Sequential(nn.Linear(hidden, ffn), nn.GELU(), nn.Linear(ffn, hidden))


def is_moe_param(param):
    return hasattr(param, "allreduce") and not param.allreduce


def allreduce_gradients(module, dp_group, expert_dp_groups):
    world = dist.get_world_size(group=dp_group)
    for param in module.parameters():
        if param.grad is None:
            continue
        group = expert_dp_groups[param.group_name] if is_moe_param(param) else dp_group
        param.grad.div_(world)
        dist.all_reduce(param.grad, group=group)
