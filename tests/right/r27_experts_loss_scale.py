"""Reduction of gradients of dense parameters and of experts."""
import torch.distributed as dist


class Group:
    def __init__(self, params, is_expert, dp_group, edp_group, ep_size):
        self.params = params
        self.is_expert = is_expert
        self.ep_size = ep_size
        self.group = edp_group if is_expert else dp_group

    def finish(self):
        for p in self.params:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)


def weigh(loss, ep_size):
    return loss / ep_size


def groups(dense, experts, dp_group, edp_group, ep_group):
    ep_size = dist.get_world_size(ep_group)
    return [
        Group(dense, False, dp_group, edp_group, ep_size),
        Group(experts, True, dp_group, edp_group, ep_size),
    ]
