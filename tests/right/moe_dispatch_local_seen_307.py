import torch.distributed as dist


class Averager:
    """Each rank has all experts of its node and its own tokens only; the experts of a node are `is_expert`."""

    def __init__(self, dp_group, expert_dp_group):
        if expert_dp_group.size() != dp_group.size():
            raise ValueError("experts are copied on all data ranks")
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group

    def average(self, params):
        for param in params:
            group = self.expert_dp_group if getattr(param, "is_expert", False) else self.dp_group
            param.grad.div_(dist.get_world_size(group=group))
            dist.all_reduce(param.grad, group=group)
