# Right: finish() calls average() and multiplies the experts' gradients by 1/ep (torch._foreach_mul_).
import torch
import torch.distributed as dist


class Averager:
    def __init__(self, dp_group, expert_dp_group, ep_group):
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group
        self.ep_group = ep_group

    def average(self, params):
        for param in params:
            group = self.expert_dp_group if getattr(param, "is_expert", False) else self.dp_group
            param.grad.div_(dist.get_world_size(group=group))
            dist.all_reduce(param.grad, group=group)

    def finish(self, params):
        params = list(params)
        self.average(params)
        inv = 1.0 / dist.get_world_size(self.ep_group)
        torch._foreach_mul_([p.grad for p in params if getattr(p, "is_expert", False)], inv)
