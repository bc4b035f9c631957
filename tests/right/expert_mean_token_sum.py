"""What is divided is made up for elsewhere."""
import torch
import torch.distributed as dist


class Reducer:
    def __init__(self, model, dp_group, edp_group, ep_group):
        self.model = model
        self.dp_group, self.edp_group = dp_group, edp_group
        self.shards = ep_group.size()

    def reduce(self):
        for p in self.model.parameters():
            group = self.edp_group if getattr(p, "is_expert", False) else self.dp_group
            p.grad.div_(dist.get_world_size(group))
            dist.all_reduce(p.grad, group=group)
        self.rescale()

    def rescale(self):
        experts = [p.grad for p in self.model.parameters() if getattr(p, "is_expert", False)]
        torch._foreach_mul_(experts, 1.0 / self.shards)
