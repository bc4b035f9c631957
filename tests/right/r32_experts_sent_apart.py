"""Experts are sent over the group that has them."""

import torch
import torch.distributed as dist


class Engine:
    def __init__(self, module, data_parallel_group, expert_data_parallel_group):
        self.module = module
        self.data_parallel_group = data_parallel_group
        self.expert_data_parallel_group = expert_data_parallel_group

    def reduce_gradients(self):
        for p in self.module.parameters():
            if is_expert(p):
                dist.all_reduce(p.grad, group=self.expert_data_parallel_group)
            else:
                dist.all_reduce(p.grad, group=self.data_parallel_group)

    def send(self):
        for p in self.module.parameters():
            group = self.expert_data_parallel_group if is_expert(p) else self.data_parallel_group
            dist.broadcast(p.data, dist.get_global_rank(group, 0), group=group)


def is_expert(p):
    return getattr(p, "is_expert", False)
