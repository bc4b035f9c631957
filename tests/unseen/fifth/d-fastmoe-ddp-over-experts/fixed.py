"""Data-parallel wrapper around a model with expert-parallel layers."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ExpertLayer(nn.Module):
    def __init__(self, hidden, num_experts, world_size):
        super().__init__()
        assert num_experts % world_size == 0
        # each rank builds its own num_experts / world_size experts
        self.experts = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(num_experts // world_size))
        for p in self.experts.parameters():
            p.is_expert = True


def wrap(model, local_rank):
    experts = [n for n, p in model.named_parameters() if getattr(p, "is_expert", False)]
    DDP._set_params_and_buffers_to_ignore_for_model(model, experts)
    return DDP(model, device_ids=[local_rank])


def train_step(model, batch, loss_fn, optimizer):
    loss_fn(model(batch)).backward()
    optimizer.step()
