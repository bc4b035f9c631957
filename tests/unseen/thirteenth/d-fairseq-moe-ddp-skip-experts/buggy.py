# Legacy data-parallel wrapper with manual gradient reduction for a model with experts.
import torch
import torch.distributed as dist
import torch.nn as nn


class LegacyDistributedDataParallel(nn.Module):
    """Experts live on moe_group; ranks with the same experts form expert_dp_group."""

    def __init__(self, module, process_group, expert_dp_group, buffer_size=2**28):
        super().__init__()
        self.module = module
        self.process_group, self.expert_dp_group = process_group, expert_dp_group
        self.world_size = dist.get_world_size(process_group)
        self.buffer_size = buffer_size

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    def _reduce_flat(self, params, group):
        if not params:
            return
        flat = torch.cat([p.grad.reshape(-1) for p in params]).div_(self.world_size)
        dist.all_reduce(flat, group=group)
        offset = 0
        for p in params:
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    def all_reduce_grads(self):
        dense, experts = [], []
        for p in self.module.parameters():
            if not p.requires_grad:
                continue
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            (experts if getattr(p, "expert", False) else dense).append(p)
        self._reduce_flat(dense, self.process_group)
        # all-to-all already brought the tokens of the moe group to the expert
        for p in experts:
            p.grad.div_(self.world_size)  # BUG
