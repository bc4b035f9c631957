"""Gradient reduction of dense and expert parameters (Megatron-FSDP v2)."""
import torch.distributed as dist


class ParamGroup:
    def __init__(self, params, is_expert, dp_group, edp_group, ep_size):
        self.params, self.is_expert, self.ep_size = params, is_expert, ep_size
        self.group = edp_group if is_expert else dp_group

    def reduce_gradients(self):
        # the loss is the mean over one data rank; dp = edp * ep.
        # an expert already holds the tokens of its ep peers, sent to it by all-to-all
        for p in self.params:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)
            if self.is_expert:
                p.grad.div_(self.ep_size)


def build(dense, experts, dp_group, edp_group, ep_group):
    ep_size = dist.get_world_size(ep_group)
    return [
        ParamGroup(dense, False, dp_group, edp_group, ep_size),
        ParamGroup(experts, True, dp_group, edp_group, ep_size),
    ]
