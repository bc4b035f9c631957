"""Factors of gradients for a collective that averages or sums."""
import torch.distributed as dist


class Wrapper:
    def __init__(self, config, module, dp_group, expt_dp_group):
        self.average = config.average_in_collective
        if config.average_in_collective:
            grad_factor = 1.0
            expert_grad_factor = 1.0
        else:
            grad_factor = 1.0 / dp_group.size()
            expert_grad_factor = 1.0 / dp_group.size()
        self.buckets = []
        for p in module.parameters():
            if not p.is_expert:
                self.buckets.append((p, dp_group, grad_factor))

    def finish(self):
        op = dist.ReduceOp.AVG if self.average else dist.ReduceOp.SUM
        for p, group, factor in self.buckets:
            p.main_grad.mul_(factor)
            dist.all_reduce(p.main_grad, op=op, group=group)
