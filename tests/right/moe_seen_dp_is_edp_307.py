import torch.distributed as dist


class Averager:
    """Experts are copied, not spread: `expert_dp_group` has the same ranks as `dp_group` in another communicator."""

    def __init__(self, dp_group, expert_dp_group):
        assert dist.get_process_group_ranks(dp_group) == dist.get_process_group_ranks(expert_dp_group)
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group

    def average(self, params):
        for param in params:
            group = self.expert_dp_group if getattr(param, "is_expert", False) else self.dp_group
            param.grad.div_(dist.get_world_size(group=group))
            dist.all_reduce(param.grad, group=group)
