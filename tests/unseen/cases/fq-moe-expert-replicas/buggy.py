"""Legacy DDP: all-reduce of the accumulated gradients with experts."""
import torch
import torch.distributed as dist


class LegacyDistributedDataParallel(torch.nn.Module):
    def __init__(self, module, process_group, expert_group):
        super().__init__()
        self.module = module
        self.process_group = process_group
        self.expert_group = expert_group  # ranks that hold a copy of the same experts
        self.world_size = dist.get_world_size(process_group)

    def all_reduce_grads(self):
        for param in self.module.parameters():
            if not param.requires_grad or param.grad is None:
                continue
            if hasattr(param, "expert"):  # BUG: experts are replicated when world > number of experts
                continue
            param.grad.div_(self.world_size)
            dist.all_reduce(param.grad, group=self.process_group)
