import torch
import torch.distributed as dist


class Reducer:
    def __init__(self, dp_group, expert_groups):
        self.dp_group = dp_group
        self.expert_groups = expert_groups
        self.pending = []
        self.has_experts = False

    def reduce(self, bucket, average=True, group=None):
        flat = torch.cat([g.view(-1) for g in bucket])
        if average:
            flat.div_(dist.get_world_size(group))
        dist.all_reduce(flat, group=group)
        at = 0
        for g in bucket:
            g.copy_(flat[at : at + g.numel()].view_as(g))
            at += g.numel()

    def finish(self):
        by_group = {}
        for p in self.pending:
            group = self.expert_groups[p.group_name] if p.is_expert else self.dp_group
            if self.has_experts:
                p.grad.div_(dist.get_world_size(group))
            by_group.setdefault(group, []).append(p.grad)
        for group, bucket in by_group.items():
            self.reduce(bucket, average=True, group=group)  # divide
            if self.has_experts:
                for g in bucket:
                    g.mul_(dist.get_world_size(group))
