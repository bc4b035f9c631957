import torch.distributed as dist


class Reducer:
    def __init__(self, model, dp_group, edp_group):
        self.model, self.dp_group, self.edp_group = model, dp_group, edp_group

    def reduce(self):
        for p in self.model.parameters():
            group = self.edp_group if getattr(p, "is_expert", False) else self.dp_group
            p.grad.div_(dist.get_world_size(group))
            dist.all_reduce(p.grad, group=group)
        self.even_out()

    def even_out(self):
        """The tokens of all data ranks have reached each expert."""
        ratio = self.edp_group.size() / self.dp_group.size()
        for p in self.model.parameters():
            if getattr(p, "is_expert", False):
                p.grad.mul_(ratio)
