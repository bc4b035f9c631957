"""Wrap a model with expert-parallel experts in DDP."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class MoELayer(torch.nn.Module):
    def __init__(self, dim, hidden, num_experts, ep_group):
        super().__init__()
        self.ep_group = ep_group
        local = num_experts // dist.get_world_size(ep_group)
        self.gate = torch.nn.Linear(dim, num_experts, bias=False)
        # other experts on each rank of ep_group
        self.w1 = torch.nn.Parameter(torch.empty(local, dim, hidden))
        self.w2 = torch.nn.Parameter(torch.empty(local, hidden, dim))
        for p in (self.w1, self.w2):
            p.skip_allreduce = True
            torch.nn.init.normal_(p, std=0.02)

    def forward(self, dispatched):
        # [local experts, capacity, dim] after the all-to-all
        return torch.bmm(torch.relu(torch.bmm(dispatched, self.w1)), self.w2)


def wrap(model, device):
    skipped = [n for n, p in model.named_parameters() if getattr(p, "skip_allreduce", False)]
    print(f"rank {dist.get_rank()}: {len(skipped)} expert parameters")
    DDP._set_params_and_buffers_to_ignore_for_model(model, skipped)
    return DDP(model, device_ids=[device])
