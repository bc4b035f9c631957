import torch
import torch.distributed as dist


class Buckets:
    def __init__(self, module, dp_group, expert_dp_group):
        self.dense = [p for p in module.parameters() if getattr(p, "allreduce", True)]
        self.experts = [p for p in module.parameters() if not getattr(p, "allreduce", True)]
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group

    def _sum(self, params, group, count):
        for p in params:
            if len(params) > count:
                raise ValueError("more parameters than ranks")
            dist.all_reduce(p.grad, group=group)
            p.grad.div_(dist.get_world_size(self.dp_group))

    def finish(self):
        self._sum(self.dense, self.dp_group, dist.get_world_size(self.dp_group))
        self._sum(self.experts, self.expert_dp_group, dist.get_world_size(self.expert_dp_group))
