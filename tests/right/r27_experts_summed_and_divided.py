import torch
import torch.distributed as dist


class GradBuffers:
    def __init__(self, dense, experts, data_group, expert_data_group):
        self.dense, self.experts = dense, experts
        self.data_group = data_group
        self.expert_data_group = expert_data_group

    def sync(self):
        dist.all_reduce(self.dense, op=dist.ReduceOp.AVG, group=self.data_group)
        dist.all_reduce(self.experts, op=dist.ReduceOp.SUM, group=self.expert_data_group)
        self.experts /= self.data_group.size()
