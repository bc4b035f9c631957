"""A function from elsewhere says which parameters are to be sent."""

import torch
import torch.distributed as dist
from trainer.parameters import should_send


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
            if should_send(p):
                dist.broadcast(p.data, dist.get_global_rank(self.data_parallel_group, 0), group=self.data_parallel_group)


def is_expert(p):
    return getattr(p, "is_expert", False)
