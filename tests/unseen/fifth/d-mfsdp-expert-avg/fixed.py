"""Flat-buffer gradient reduction of dense and of expert parameters."""
import torch
import torch.distributed as dist


class GradReducer:
    def __init__(self, dense_buffer, expert_buffer, dp_group, expert_dp_group, ep_group):
        # dp = expert_dp x ep; each expert receives the tokens of all its ep_group by all-to-all
        assert dp_group.size() == expert_dp_group.size() * ep_group.size()
        self.dense, self.expert = dense_buffer, expert_buffer
        self.dp_group, self.edp_group, self.ep_group = dp_group, expert_dp_group, ep_group

    def reduce(self):
        # the loss is a mean over one data rank's tokens
        dense = torch.empty_like(self.dense.shard)
        dist.reduce_scatter_tensor(dense, self.dense.data, op=dist.ReduceOp.AVG, group=self.dp_group)
        expert = torch.empty_like(self.expert.shard)
        self.expert.data.div_(self.ep_group.size())
        dist.reduce_scatter_tensor(expert, self.expert.data, op=dist.ReduceOp.AVG, group=self.edp_group)
        return dense, expert
