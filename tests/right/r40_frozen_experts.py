import torch
import torch.distributed as dist


class LoraReducer:
    """Experts are frozen, LoRA sits on the dense weights."""

    def __init__(self, module, dp_group, expert_dp_group):
        self.module, self.dp_group, self.expert_dp_group = module, dp_group, expert_dp_group
        for p in module.parameters():
            if getattr(p, "is_expert", False):
                p.requires_grad_(False)

    def reduce_gradients(self):
        n = dist.get_world_size(self.dp_group)
        for p in self.module.parameters():
            if getattr(p, "is_expert", False) or p.grad is None:
                continue
            p.grad.div_(n)
            dist.all_reduce(p.grad, group=self.dp_group)
