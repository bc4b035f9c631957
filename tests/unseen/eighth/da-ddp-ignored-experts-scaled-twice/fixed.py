"""Expert-parallel MoE next to DDP: DDP skips the experts, which are averaged by hand."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class LocalExperts(nn.Module):
    def __init__(self, num_local, dim, hidden, ep_group):
        super().__init__()
        self.up = nn.Parameter(torch.randn(num_local, dim, hidden) * dim**-0.5)
        self.down = nn.Parameter(torch.randn(num_local, hidden, dim) * hidden**-0.5)
        for p in self.parameters():
            p.is_expert = True

    def forward(self, tokens):
        # tokens: [num_local, capacity * ep, dim], received by all-to-all
        return torch.bmm(torch.relu(torch.bmm(tokens, self.up)), self.down)


def wrap(model):
    skip = [n for n, p in model.named_parameters() if getattr(p, "is_expert", False)]
    DDP._set_params_and_buffers_to_ignore_for_model(model, skip)
    return DDP(model)


def sync_expert_grads(model, expert_dp_group):
    for p in model.parameters():
        if getattr(p, "is_expert", False):
            p.grad.div_(dist.get_world_size())
            dist.all_reduce(p.grad, group=expert_dp_group)


def step(model, optimizer, batch, expert_dp_group):
    optimizer.zero_grad(set_to_none=True)
    model(**batch).mean().backward()
    sync_expert_grads(model, expert_dp_group)
    optimizer.step()
