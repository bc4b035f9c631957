import torch
import torch.distributed as dist


class Buckets:
    def __init__(self, module, dp_group, expert_dp_group):
        self.dense = [p for p in module.parameters() if getattr(p, "allreduce", True)]
        self.experts = [p for p in module.parameters() if not getattr(p, "allreduce", True)]
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group

    def _sum(self, params, group, count):
        for p in params:
            p.grad.div_(count)
            dist.all_reduce(p.grad, group=group)

    def finish(self):
        size = dist.get_world_size(self.dp_group)
        self._sum(self.dense, self.dp_group, size)
        self._sum(self.experts, self.expert_dp_group, size)
